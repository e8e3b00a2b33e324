package test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/pvelab"
)

// snapshotting returns a site that takes a snapshot before each operation above green on a guest.
func snapshotting(t *testing.T, rules string) *site {
	t.Helper()
	s := newSite(t, filepath.Join(plugins, "guests.wasm"))
	s.write(t, "site/data.yaml", s.read(t, "site/data.yaml")+"\nsnapshot: {"+rules+"}\n")
	return s
}

// commands returns the commands that reached the nodes and are not "status", without the words
// behind the guest.
func (s *site) commands() (all []string) {
	for _, e := range s.lab.Effects() {
		if len(e.Argv) > 2 && slices.Contains([]string{"pct", "qm"}, e.Argv[0]) &&
			e.Argv[1] != "status" {
			all = append(all, strings.Join(e.Argv[:3], " "))
		}
	}
	return all
}

type kept struct {
	VMID, Name, Call, Principal, Tool string
	Taken                             bool
}

func (s *site) snapshots(t *testing.T) (all []kept) {
	t.Helper()
	out, err := s.command("snapshots", "--json").Output()
	must(t, err)
	must(t, json.Unmarshal(out, &all))
	return all
}

func TestTheHostTakesASnapshotBeforeAGuestIsChanged(t *testing.T) {
	s := snapshotting(t, "tier: yellow, optional: false, keep: 1, keep_days: 7")
	out, err := s.command("call", "--json", "start_guest", `{"guest_id":104}`).Output()
	var a struct {
		CallID string `json:"call_id"`
	}
	if err != nil || json.Unmarshal(out, &a) != nil {
		t.Fatalf("%v %s", err, out)
	}
	if got, want := s.commands(), []string{"pct snapshot 104", "pct start 104"}; !slices.Equal(got,
		want) {
		t.Fatalf("commands %q, want %q", got, want)
	}
	all, name := s.snapshots(t), "caponier-"+strings.ToLower(a.CallID)
	if len(all) != 1 || all[0] != (kept{"104", name, a.CallID, "demo", "start_guest", true}) {
		t.Errorf("recorded %+v", all)
	}
	if !s.hasSnapshot(t, name) {
		t.Errorf("the guest has no snapshot %s", name)
	}
	s.journaled(t, `"type":"intent".*"op":"ssh_exec".*"principal":"host".*"tool":"take_snapshot"`)

	// A second call takes its own, and the first one's is over the limit.
	if out, err := s.command("call", "stop_guest",
		`{"guest_id":104,"force":true}`).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	s.serveHTTPFor(t, func() bool { return !s.hasSnapshot(t, name) && len(s.snapshots(t)) == 1 })
	if all := s.snapshots(t); len(all) != 1 || all[0].Name == name ||
		!s.hasSnapshot(t, all[0].Name) {
		t.Errorf("after pruning: %+v", all)
	}
	s.journaled(t, `"type":"intent".*"principal":"host".*"tool":"prune_snapshot".*"tier":"red"`)
	if out, err := s.command("audit", "verify").CombinedOutput(); err != nil {
		t.Errorf("audit verify: %v %s", err, out)
	}
}

// If a node lists no guests at all, for example because its cluster file system is down, the host
// keeps all records. If a guest is missing while others are listed, the host deletes the records of
// its snapshots.
func TestASnapshotIsForgottenOnlyWhereItsGuestIsGone(t *testing.T) {
	s := snapshotting(t, "tier: yellow, optional: false, keep: 1, keep_days: 7")
	for _, call := range [][]string{{"start_guest", `{"guest_id":104}`},
		{"stop_guest", `{"guest_id":104,"force":true}`}} {
		if out, err := s.command(append([]string{"call"},
			call...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	before := s.snapshots(t)
	if len(before) != 2 {
		t.Fatalf("recorded %+v", before)
	}
	guests := func(change func(*pvelab.State)) {
		must(t, s.lab.Edit(func(st *pvelab.State) error { change(st); return nil }))
	}
	var all []*pvelab.Guest
	guests(func(st *pvelab.State) { all, st.Guests = st.Guests, nil })
	s.serveHTTPFor(t, func() bool {
		return s.has(t,
			`"type":"outcome".*"kind":"call".*"tool":"prune_snapshot".*"outcome":"failed"`)
	})
	if after := s.snapshots(t); !slices.Equal(after, before) {
		t.Errorf("forgotten: %+v of %+v", after, before)
	}
	guests(func(st *pvelab.State) {
		st.Guests = slices.DeleteFunc(all, func(g *pvelab.Guest) bool { return g.VMID == 104 })
	})
	s.serveHTTPFor(t, func() bool { return len(s.snapshots(t)) == 1 })
	if got := s.commands(); slices.ContainsFunc(got, func(c string) bool {
		return strings.Contains(c, "delsnapshot")
	}) {
		t.Errorf("reached the node: %q", got)
	}
}

// A container's file is changed by a call, and the call is undone: as a call of its own, which a
// person approves.
func TestACallIsUndoneByItsSnapshot(t *testing.T) {
	s := snapshotting(t, "tier: yellow, optional: false, keep: 5, keep_days: 7")
	must(t, s.lab.WriteGuestFile(105, "/root/a", "before\n"))
	file := func() string {
		data, err := s.lab.GuestFile(105, "/root/a")
		must(t, err)
		return string(data)
	}
	changed := s.once(t, "call", "proxmox_container_exec_command",
		`{"vmid":105,"command":"cp /etc/hostname /root/a"}`)
	if changed.code != 0 || file() == "before\n" {
		t.Fatalf("%+v: %q", changed, file())
	}
	before := len(s.lab.Effects())
	if a := s.once(t, "undo", "06H0000000000000000000000A"); a.code != 3 {
		t.Errorf("a call that nobody made: %+v", a)
	}
	s.swap(t, "config.toml", `principal = "demo"`, `principal = "other"`)
	if a := s.once(t, "undo", changed.CallID); a.code != 3 {
		t.Errorf("by another principal: %+v", a)
	}
	s.swap(t, "config.toml", `principal = "other"`, `principal = "demo"`)
	if got := len(s.lab.Effects()); got != before {
		t.Errorf("refused, and %d commands reached the node", got-before)
	}

	waits := s.once(t, "undo", changed.CallID)
	if waits.code != 4 || waits.ApprovalID == "" || file() == "before\n" {
		t.Fatalf("%+v: %q", waits, file())
	}
	if out, err := s.command("approvals", "approve",
		waits.ApprovalID).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	undone := s.once(t, "undo", changed.CallID)
	if undone.code != 0 || file() != "before\n" {
		t.Fatalf("%+v: %q", undone, file())
	}
	if a := s.once(t, "undo", undone.CallID); a.code != 3 {
		t.Errorf("undo of an undo: %+v", a)
	}
	if out, err := s.command("audit", "verify").CombinedOutput(); err != nil {
		t.Errorf("audit verify: %v %s", err, out)
	}
}

// hasSnapshot reports whether the lab's guest 104 has a snapshot.
func (s *site) hasSnapshot(t *testing.T, name string) (has bool) {
	t.Helper()
	must(t, s.lab.Edit(func(st *pvelab.State) error {
		for _, g := range st.Guests {
			if g.VMID == 104 {
				has = slices.ContainsFunc(g.Snapshots, func(x *pvelab.Snapshot) bool {
					return x.Name == name
				})
			}
		}
		return nil
	}))
	return has
}

// serveHTTPFor starts a host and waits for what it does in the background.
func (s *site) serveHTTPFor(t *testing.T, is func() bool) {
	t.Helper()
	if !strings.Contains(s.read(t, "config.toml"), "[identity]") {
		s.append(t, "\n[identity]\nhttp = \"demo\"\n[[identity.principals]]\nid = \"demo\"\n")
	}
	s.serveHTTP(t)
	waitFor(t, "the host", is)
	must(t, s.host.Kill())
}

func TestAGuestWithoutSnapshotsIsChangedOnlyWhereTheSiteAllows(t *testing.T) {
	stop := []string{"call", "proxmox_stop_container", `{"vmid":101}`}
	s := snapshotting(t, "tools: [proxmox_stop_container, stop_guest, stop_vm, stop_container], "+
		"optional: false, keep: 1, keep_days: 7")
	out, err := s.command(stop...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no snapshot of guest 101 could be taken") ||
		len(s.commands()) > 0 {
		t.Errorf("%v %s; reached the node: %q", err, out, s.commands())
	}
	s.write(t, "site/data.yaml", strings.Replace(s.read(t, "site/data.yaml"), "optional: false",
		"optional: true", -1))
	out, err = s.command(stop...).CombinedOutput()
	if err != nil || len(s.commands()) != 1 || strings.Contains(s.commands()[0], "snapshot") {
		t.Errorf("%v %s; reached the node: %q", err, out, s.commands())
	}
}

// A host that is killed while it takes the snapshot, or after it, leaves one that is recorded.
func TestAKilledHostLeavesARecordedSnapshot(t *testing.T) {
	s := snapshotting(t, "tier: yellow, optional: false, keep: 5, keep_days: 7")
	cmd := s.command("call", "start_guest", `{"guest_id":104}`)
	s.lab.SetLatency(time.Second)
	must(t, cmd.Start())
	waitFor(t, "the snapshot", func() bool { return len(s.commands()) > 0 })
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	s.lab.SetLatency(0)
	if got := s.commands(); !slices.Equal(got, []string{"pct snapshot 104"}) {
		t.Fatalf("reached the node: %q", got)
	}
	all := s.snapshots(t)
	if len(all) != 1 || all[0].VMID != "104" || all[0].Tool != "start_guest" {
		t.Fatalf("recorded %+v", all)
	}
	waitFor(t, "the snapshot on the node", func() bool { return s.hasSnapshot(t, all[0].Name) })
	if out, err := s.command("audit", "verify").CombinedOutput(); err != nil {
		t.Errorf("audit verify: %v %s", err, out)
	}
}
