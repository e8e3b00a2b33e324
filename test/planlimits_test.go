package test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/needs"
)

// A plan of 10,000 operations is refused at its 1,001st step. Nobody is asked for an approval. The
// caller sees where the plan ends, and later operations are neither decided nor journaled.
func TestAPlanOfTenThousandOperationsIsRefused(t *testing.T) {
	s, session, asked := planSite(t, "  \"tool:deviant_flood\": red\n",
		filepath.Join(guests, "deviant.wasm"))
	args := func(n int) map[string]any { return map[string]any{"vmid": 101, "n": n} }
	began := len(s.lab.Effects())
	how, _, said := outcome(t, session, "deviant_flood", args(10_001))
	if how != "refused" || !strings.Contains(said,
		"step 1001 of the plan, ssh_exec, is refused: steps") || len(*asked) > 0 {
		t.Errorf("the call: %s, asked %q: %s", how, *asked, said)
	}
	p, text := plan(t, session, "deviant_flood", args(10_001))
	if p.Complete || p.Ends != "step 1001 is refused: a plan has at most 1000 steps" ||
		len(p.Steps) != 1001 || p.Steps[1000].Allowed ||
		!strings.Contains(text, "NOT COMPLETE: step 1001 is refused: a plan has at most 1000 ") {
		t.Errorf("the plan: complete %v (%s), %d steps\n%s", p.Complete, p.Ends, len(p.Steps), text)
	}
	if changes, _ := since(s, began); len(changes) > 0 {
		t.Errorf("the node saw %q", changes)
	}
	t.Setenv("GOGC", "50") // so that what is held shows through what is garbage
	peak := map[int]int64{}
	for _, n := range []int{1, 1000, 1001, 10_000, 10_001} {
		before := len(s.journal(t))
		cmd := s.command("plan", "--json", "deviant_flood", fmt.Sprintf(`{"vmid":101,"n":%d}`, n))
		var out bytes.Buffer
		cmd.Stdout = &out
		mib, err := peakOf(cmd)
		refused := (*exec.ExitError)(nil)
		if over := n > 1000; errors.As(err, &refused) != over || over && refused.ExitCode() != 3 ||
			strings.Contains(out.String(), "at most 1000 steps") != over {
			t.Errorf("%d operations: %v\n%.2000s", n, err, out.String())
		}
		peak[n] = mib
		t.Logf("%5d operations: %d MiB at most, %d KiB of journal, %v", n, peak[n],
			(len(s.journal(t))-before)>>10, cmd.ProcessState.UserTime().Round(time.Millisecond))
	}
	if peak[1] == 0 || peak[10_001] > peak[1]+40 {
		t.Errorf("a plan of 10,001 operations takes %d MiB, one of 1 takes %d", peak[10_001],
			peak[1])
	}
	if changes, _ := since(s, began); len(changes) > 0 {
		t.Errorf("the node saw %q", changes)
	}
}

// An approval of a plan does not count after it has expired, and neither does a request that nobody
// answered in time.
func TestAnExpiredPlanIsNotExecuted(t *testing.T) {
	s := terminalSite(t, filepath.Join(plugins, "guests.wasm"))
	s.swap(t, "config.toml", `wait = "60s"`, "wait = \"60s\"\nexpires = \"8s\"")
	stop := []string{"call", "stop_guest", `{"guest_id":105,"force":true}`}
	gone := func(id string) {
		waitFor(t, "the end of "+id, func() bool {
			out, err := s.command("approvals", "show", "--as", "ann", id).CombinedOutput()
			return err != nil && strings.Contains(string(out),
				"there is no such request, or it has expired")
		})
	}
	began := len(s.lab.Effects())

	b := s.begin(t, stop[1], stop[2])
	select {
	case r := <-b.done:
		if r.Outcome != "refused" || !strings.Contains(r.all, "expired") {
			t.Errorf("nobody answered: %s", r.all)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the call does not end")
	}
	late, err := s.command("approvals", "approve", "--as", "ann", b.id).CombinedOutput()
	if err == nil || !strings.Contains(string(late), "expired") {
		t.Errorf("a late yes: %v %s", err, late)
	}

	waits := s.once(t, stop...)
	if out, err := s.command("approvals", "approve", "--as", "ann",
		waits.ApprovalID).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	gone(waits.ApprovalID)
	s.swap(t, "config.toml", "\nexpires = \"8s\"", "")
	again := s.once(t, stop...)
	if again.code != 4 || again.ApprovalID == "" || again.ApprovalID == waits.ApprovalID {
		t.Errorf("after the yes expired: %d %s", again.code, again.text)
	}
	if changes, _ := since(s, began); len(changes) > 0 {
		t.Errorf("the node saw %q", changes)
	}
	if out, err := s.command("approvals", "approve", "--as", "ann",
		again.ApprovalID).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if a := s.once(t, stop...); a.code != 0 {
		t.Errorf("with a yes that holds: %d %s", a.code, a.text)
	}
	if changes, _ := since(s, began); !slices.Equal(changes, []string{"pct stop 105"}) {
		t.Errorf("the node saw %q", changes)
	}
}

// oldModule is a module for ABI 1.0: its description has no minor version, and it knows only the
// statuses of that version. It stops and starts container 101. If goesOn is true, it ignores the
// status of the first operation.
func oldModule(t *testing.T, goesOn bool) string {
	t.Helper()
	needs.Program(t, "wat2wasm") // of Debian's wabt
	const schema = `{"type":"object","properties":{"vmid":{"type":"integer","minimum":100,` +
		`"maximum":999999999,` +
		`"description":"The ` +
		`container","x-caponier-target":"vmid"}},"required":["vmid"],"additionalProperties":false}`
	texts := []string{
		`{"abi":1,"name":"old","version":"1.0.0","resources":[],"prompts":[],` +
			`"tools":[{"name":"old_act","title":"Old",` +
			`"description":"Restarts a container.","input_schema":` + schema +
			`,"output_schema":{"type":"object"},` +
			`"hints":{"read_only":false,"destructive":true,"idempotent":false,"open_world":false}` +
			`,"imports":["ssh_exec"],` +
			`"commands":["pct start","pct stop"],"budget_ms":10000,"runs":"pct stop VMID; pct ` +
			`start VMID"}]}`,
		`{"node":"pve1","argv":["pct","stop","101"]}`,
		`{"node":"pve1","argv":["pct","start","101"]}`,
		`{"content":[{"type":"text","text":"restarted"}],"structured":{}}`,
		`{"content":[{"type":"text","text":"not ` +
			`stopped"}],"error":{"code":"failed","message":"not stopped"}}`,
	}
	data, at, call := "", 0, []string{}
	for _, text := range texts {
		data += fmt.Sprintf("(data (i32.const %d) %q)\n", at, text)
		call = append(call, fmt.Sprintf("(i32.const %d) (i32.const %d)", at, len(text)))
		at += len(text)
	}
	checked := fmt.Sprintf(
		"(if (call $ssh %s) (then (drop (call $out %s)) (return (i32.const 1))))", call[1], call[4])
	if goesOn {
		checked = fmt.Sprintf("(drop (call $ssh %s))", call[1])
	}
	text := fmt.Sprintf(`(module
	(import "caponier_v1" "ssh_exec" (func $ssh (param i32 i32) (result i32)))
	(import "caponier_v1" "output_write" (func $out (param i32 i32) (result i32)))
	(memory (export "memory") 1)
	%s
	(func (export "caponier_v1_describe") (result i32) (drop (call $out %s)) (i32.const 0))
	(func (export "caponier_v1_call") (result i32)
		%s
		(drop (call $ssh %s)) (drop (call $out %s)) (i32.const 0)))`,
		data, call[0], checked, call[2], call[3])
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "old.wat"), []byte(text), 0o600))
	file := filepath.Join(dir, "old.wasm")
	if out, err := exec.Command("wat2wasm", "-o", file,
		filepath.Join(dir, "old.wat")).CombinedOutput(); err != nil {
		t.Fatalf("%v %s\n%s", err, out, text)
	}
	return file
}

// The plan of a module of ABI 1.0 ends at its first operation above green, says so and why, and is
// approved only where the site lets incomplete plans be. A run then does what it declares.
func TestThePlanOfAModuleOfABI10EndsAtItsFirstEffect(t *testing.T) {
	for _, goesOn := range []bool{false, true} {
		t.Run(fmt.Sprintf("goes on: %v", goesOn), func(t *testing.T) {
			s, session, asked := planSite(t, "  \"tool:old_act\": red\n", oldModule(t, goesOn))
			args := map[string]any{"vmid": 101}
			p, text := plan(t, session, "old_act", args)
			steps := map[bool]int{false: 1, true: 2}[goesOn]
			ends := fmt.Sprintf("after step %d, since plugin old was built for an ABI before 1.2",
				steps)
			if p.Complete || len(p.Steps) != steps || !strings.HasPrefix(p.Ends, ends) ||
				!strings.Contains(text, "NOT COMPLETE") || !strings.Contains(text, ends) {
				t.Errorf("%d steps, complete %v (%s)\n%s", len(p.Steps), p.Complete, p.Ends, text)
			}
			s.journaled(t, `"type":"outcome".*"op":"ssh_exec".*"tool":"old_act".`+
				`*"outcome":"planned".*"code":"planning"`)
			how, _, said := outcome(t, session, "old_act", args)
			if how != "refused" || !strings.Contains(said, "the plan is not complete: "+ends) ||
				len(*asked) > 0 {
				t.Errorf("the call: %s, asked %q: %s", how, *asked, said)
			}
			if changes, _ := since(s, 0); len(changes) > 0 {
				t.Errorf("the node saw %q", changes)
			}
			s.rewrite(t, "incomplete_plans: false", "incomplete_plans: true")
			how, _, said = outcome(t, session, "old_act", args)
			if how != "succeeded" || len(*asked) != 1 ||
				!strings.Contains((*asked)[0], "NOT COMPLETE") ||
				!strings.Contains((*asked)[0], ends) {
				t.Errorf("where the site allows it: %s, asked %q: %s", how, *asked, said)
			}
			if changes, _ := since(s, 0); !slices.Equal(changes,
				[]string{"pct stop 101", "pct start 101"}) {
				t.Errorf("the node saw %q", changes)
			}
		})
	}
}

// If the storage refuses the snapshot that a call needs, or the node reports a snapshot that does
// not exist, nothing of the approved plan is done, and the store records no snapshot.
func TestWithoutTheSnapshotThatAPlanPromisesNothingIsDone(t *testing.T) {
	for claim, c := range map[string]struct {
		spoil func(*site) error
		why   string
	}{
		"the quota is full": {func(s *site) error { return s.lab.QuotaFull(104) },
			"zfs error: cannot create snapshot 'rpool/data/subvol-104-disk-0': out of space"},
		"it is reported as made": {func(s *site) error { return s.lab.LoseSnapshots(104) },
			"Proxmox reported success, but guest 104 has no snapshot caponier-"},
	} {
		t.Run(claim, func(t *testing.T) {
			s := snapshotting(t, "tier: yellow, optional: false, keep: 5, keep_days: 7")
			s.rewrite(t, `vmids: ["101", "104", "105"]`, "vmids: []")
			start := []string{"call", "start_guest", `{"guest_id":104}`}
			must(t, c.spoil(s))
			waits := s.once(t, start...)
			if waits.code != 4 {
				t.Fatalf("%d %s", waits.code, waits.text)
			}
			shown, err := s.command("approvals", "show", waits.ApprovalID).CombinedOutput()
			if err != nil || !strings.Contains(string(shown), "pct start 104 on pve1") ||
				!strings.Contains(string(shown),
					"roll back 104 to the snapshot that the host takes first") {
				t.Errorf("the person sees: %v\n%s", err, shown)
			}
			a := s.try(t, start...)
			if a.code != 1 || !strings.Contains(a.text, "no snapshot of guest 104 could be taken "+
				"before it is changed, so nothing was done") ||
				!strings.Contains(a.text, c.why) {
				t.Errorf("%d, want %q: %s", a.code, c.why, a.text)
			}
			if changes, _ := since(s, 0); len(changes) != 1 ||
				!strings.HasPrefix(changes[0], "pct snapshot 104 caponier-") {
				t.Errorf("the node saw %q", changes)
			}
			if all := s.snapshots(t); len(all) > 0 || s.status(t, 104) != "stopped" {
				t.Errorf("recorded %+v, the guest is %s", all, s.status(t, 104))
			}
			s.refuses(t, "the host has no record of a call "+a.CallID+" of yours", "undo", a.CallID)
			s.journaled(t,
				`"type":"outcome".*"tool":"start_guest".*"outcome":"failed","code":"no_snapshot"`)
			if out, err := s.command("audit", "verify").CombinedOutput(); err != nil {
				t.Errorf("audit verify: %v %s", err, out)
			}
		})
	}
}

// What a plan of a guest's stop reads: what the tool itself reads before it stops the guest, and
// the five reads of docs/plan.md for what the step touches. The call without a plan does not make
// these.
func TestAPlanReadsWhatItsToolReadsAndWhatItsStepsTouch(t *testing.T) {
	s := newSite(t, filepath.Join(plugins, "guests.wasm"))
	guestRuns(105, true)(t, s)
	count := func(verb ...string) (reads []string, changes []string) {
		n := len(s.lab.Effects())
		if a := s.once(t, verb...); a.code != 0 {
			t.Fatalf("%q: %d %s", verb, a.code, a.text)
		}
		changes, all := since(s, n)
		return slices.DeleteFunc(all, func(l string) bool {
			return !strings.HasPrefix(l, "pvesh get ")
		}), changes
	}
	args := `{"guest_id":105,"force":true}`
	planned, changed := count("plan", "stop_guest", args)
	called, done := count("call", "stop_guest", args)
	t.Logf("the plan reads %q", planned)
	t.Logf("the call reads %q", called)
	if len(changed) > 0 || !slices.Equal(done, []string{"pct stop 105"}) {
		t.Errorf("the plan did %q, the call %q", changed, done)
	}
	if len(planned) > len(called)+5 {
		t.Errorf("a plan makes %d reads, its call %d: want at most 5 more", len(planned),
			len(called))
	}
}

var ids = regexp.MustCompile(`[0-9A-V]{26}`)

// If a principal asks to undo another principal's call, the host refuses with the same text as for
// a call that does not exist, whatever the call touched.
func TestUndoRevealsNothingOfAnotherPrincipalsCall(t *testing.T) {
	s := undoing(t, "")
	s.write(t, "site/data.yaml", s.read(t, "site/data.yaml")+
		"\nsnapshot: {tools: [stop_guest, stop_vm, stop_container, proxmox_stop_container], "+
		"optional: false, keep: 5, keep_days: 7}\n")
	s.rewrite(t, "\nprincipals:\n", "\nprincipals:\n  other: {auth: [config], roles: [operator]}\n")
	calls := map[string]string{"nobody made": "06H0000000000000000000000A"}
	for what, args := range map[string][]string{
		"started a guest": {"start_guest", `{"guest_id":104}`},
		"took a snapshot": {"stop_guest", `{"guest_id":105,"force":true}`},
		"set values": {"proxmox_host_exec_command",
			`{"command":"pct set 104 --memory 777"}`},
		"stopped a service": {"proxmox_host_exec_command", `{"command":"systemctl stop -- cron"}`},
		"disabled one": {"proxmox_host_exec_command",
			`{"command":"systemctl disable -- nginx"}`},
		"wrote a file": {"proxmox_upload_file_to_host",
			`{"local_path":"app.conf","host_path":"/opt/app.conf"}`},
		"cannot be undone": {"proxmox_host_exec_command",
			`{"command":"systemctl restart -- pveproxy"}`},
		"only read":  {"proxmox_container_status", `{"vmid":101}`},
		"was undone": {"start_vm", `{"node":"pve1","vmid":200}`},
	} {
		if what == "was undone" {
			args = []string{"proxmox_host_exec_command", `{"command":"qm start 200"}`}
		}
		calls[what] = s.done(t, append([]string{"call"}, args...)...).CallID
	}
	calls["is an undo"] = s.done(t, "undo", calls["was undone"]).CallID
	// The targets of the calls are now protected, stopped and dead. Another principal must not
	// learn this.
	s.rewrite(t, `"103": {reason: management VM of the lab}`, `"104": {reason: secret}`,
		"services: []",
		"services: [{service: cron, nodes: [\"*\"], reason: secret}]")
	s.swap(t, "config.toml", `principal = "demo"`, `principal = "other"`)
	began := len(s.lab.Effects())
	for _, verb := range [][]string{{"undo"}, {"plan", "undo_call"}, {"call", "undo_call"}} {
		want := ""
		kinds := append([]string{"nobody made"}, slices.Sorted(mapKeys(calls))...)
		if len(verb) > 1 { // which are the same call
			kinds = []string{"nobody made", "took a snapshot", "wrote a file"}
		}
		for _, what := range kinds {
			arg := calls[what]
			if len(verb) > 1 {
				arg = fmt.Sprintf(`{"call":%q}`, arg)
			}
			cmd := s.command(append(slices.Clone(verb), arg)...)
			out, err := cmd.CombinedOutput()
			exit := (*exec.ExitError)(nil)
			got := ids.ReplaceAllString(string(out), "ID")
			got = regexp.MustCompile(`(?m)^.*level=WARN.*\n|sha256:[0-9a-f]+`).ReplaceAllString(got,
				"")
			if want == "" {
				want = got
			}
			if !errors.As(err, &exit) || exit.ExitCode() != 3 || got != want ||
				strings.Contains(got, "secret") {
				t.Errorf("%q of a call that %s: %v\n%s\nof one that nobody made:\n%s", verb, what,
					err, got, want)
			}
		}
		t.Logf("%q: %s", verb, want)
	}
	if n := len(s.lab.Effects()); n > began {
		t.Errorf("%d commands reached a node", n-began)
	}
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
