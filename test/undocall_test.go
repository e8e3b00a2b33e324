package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/pvelab"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// undoing returns a site that records what takes every operation above green back.
func undoing(t *testing.T, more string) *site {
	t.Helper()
	s := newSite(t, filepath.Join(plugins, "guests.wasm"), filepath.Join(plugins, "hostops.wasm"))
	s.rewrite(t, "  write: []", "  write: [/opt]", "# \"tool:proxmox_", "\"tool:proxmox_")
	s.write(t, "site/data.yaml", s.read(t, "site/data.yaml")+
		"\nundo: {tier: yellow, optional: false, keep_days: 7, max_bytes: 64"+more+"}\n")
	work := filepath.Join(s.dir, "lab/workspace/demo")
	must(t, os.MkdirAll(work, 0o700))
	must(t, os.WriteFile(filepath.Join(work, "app.conf"), []byte("port = 1\n"), 0o600))
	return s
}

type ended struct {
	Outcome    string
	CallID     string `json:"call_id"`
	ApprovalID string `json:"approval_id"`
	Refused    []any
	code       int
	text       string
}

// try runs a verb, approves what waits, and runs it again.
func (s *site) try(t *testing.T, args ...string) (a ended) {
	t.Helper()
	for range 2 {
		a = s.once(t, args...)
		if a.code != 4 {
			break
		}
		if out, err := s.command("approvals", "approve",
			a.ApprovalID).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	return a
}

// once runs a verb: in a process of its own, or in the one that answers.
func (s *site) once(t *testing.T, args ...string) (a ended) {
	t.Helper()
	if s.answers != nil {
		return s.asked(t, args...)
	}
	cmd := s.command(append([]string{args[0], "--json"}, args[1:]...)...)
	cmd.Env = append(cmd.Environ(), "CAPONIER_APPROVAL_WAIT=100ms")
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		a.code, a.text = exit.ExitCode(), string(exit.Stderr)
	} else {
		must(t, err)
	}
	_ = json.Unmarshal(out, &a)
	a.text += string(out)
	return a
}

// asked makes the call of a verb, as `caponier call` and `caponier undo` do, in the process that
// answers: a test that makes a hundred calls then starts one host.
func (s *site) asked(t *testing.T, args ...string) (a ended) {
	t.Helper()
	tool, arguments := "undo_call", map[string]any{"call": args[1]}
	if args[0] == "call" {
		tool, arguments = args[1], nil
		must(t, json.Unmarshal([]byte(args[2]), &arguments))
	}
	res, err := s.answers.CallTool(t.Context(), &mcp.CallToolParams{Name: tool,
		Arguments: arguments})
	must(t, err)
	sum, err := json.Marshal(res.Meta["io.caponier/call"])
	must(t, err)
	must(t, json.Unmarshal(sum, &a))
	codes := map[string]int{"succeeded": 0, "failed": 1, "refused": 3, "waiting": 4}
	code, known := codes[a.Outcome]
	if !known {
		t.Fatalf("%q ended as %q", args, a.Outcome)
	}
	if code == 1 && len(a.Refused) > 0 {
		code = 3
	}
	a.code, a.text = code, whole(running{answer: res})+string(sum)
	return a
}

// answer starts a host that makes the calls of this site from now on.
func (s *site) answer(t *testing.T) {
	t.Helper()
	cmd := s.command("serve")
	cmd.Env = append(cmd.Env, "CAPONIER_APPROVAL_WAIT=100ms")
	cmd.Stderr = t.Output()
	var err error
	s.answers, err = mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	must(t, err)
	t.Cleanup(func() { s.answers.Close() })
}

// done makes a call that has to succeed.
func (s *site) done(t *testing.T, args ...string) ended {
	t.Helper()
	a := s.try(t, args...)
	if a.code != 0 {
		t.Fatalf("%q: %d %s", args, a.code, a.text)
	}
	return a
}

// refuses holds that a verb is refused for this reason, and that nothing but reads reached a node.
func (s *site) refuses(t *testing.T, why string, args ...string) {
	t.Helper()
	before := len(s.lab.Effects())
	if a := s.try(t, args...); a.code != 3 || !strings.Contains(a.text, why) {
		t.Errorf("%q: %d, want a refusal with %q: %s", args, a.code, why, a.text)
	}
	for _, e := range s.lab.Effects()[before:] {
		if text := strings.Join(e.Argv, " "); !reads.MatchString(text) && len(e.Argv) > 0 {
			t.Errorf("%q: refused, and %q reached the node", args, text)
		}
	}
}

func (s *site) status(t *testing.T, vmid int) (status string) {
	t.Helper()
	must(t, s.lab.Edit(func(st *pvelab.State) error {
		for _, g := range st.Guests {
			if g.VMID == vmid {
				status = map[bool]string{true: "running", false: "stopped"}[g.Running]
			}
		}
		return nil
	}))
	return status
}

func TestAStartedGuestIsStoppedAgainByUndo(t *testing.T) {
	s := undoing(t, "")
	a := s.done(t, "call", "start_guest", `{"guest_id":104}`)
	if s.status(t, 104) != "running" {
		t.Fatal("it does not run")
	}
	waits := s.once(t, "undo", a.CallID)
	if waits.code != 4 || s.status(t, 104) != "running" {
		t.Fatalf("an undo is not approved by itself: %d %s", waits.code, waits.text)
	}
	u := s.done(t, "undo", a.CallID)
	if s.status(t, 104) != "stopped" {
		t.Errorf("after the undo: %s", s.status(t, 104))
	}
	s.refuses(t, "has no record of a call", "undo", u.CallID)
	s.refuses(t, "guest 104 was running after the call, and is stopped", "undo", a.CallID)
	out, err := s.command("audit", "verify").CombinedOutput()
	if err != nil {
		t.Errorf("audit verify: %v %s", err, out)
	}
}

// An undo removes an uploaded file and restores a replaced one, unless somebody wrote to the file
// since.
func TestUploadsAreUndone(t *testing.T) {
	s := undoing(t, "")
	upload := func() ended {
		return s.done(t, "call", "proxmox_upload_file_to_host",
			`{"local_path":"app.conf","host_path":"/opt/app.conf","overwrite":true}`)
	}
	holds := func() string {
		data, err := s.lab.NodeFile("pve1", "/opt/app.conf")
		if err != nil {
			return "nothing"
		}
		return string(data)
	}
	a := upload()
	must(t, s.lab.WriteNodeFile("pve1", "/opt/app.conf", "by hand\n"))
	s.refuses(t, "file /opt/app.conf holds something else", "undo", a.CallID)
	if holds() != "by hand\n" {
		t.Fatalf("after a refused undo: %q", holds())
	}
	b := upload()
	if holds() != "port = 1\n" {
		t.Fatalf("uploaded: %q", holds())
	}
	s.swap(t, "config.toml", `principal = "demo"`, `principal = "other"`)
	s.refuses(t, "", "undo", b.CallID)
	s.swap(t, "config.toml", `principal = "other"`, `principal = "demo"`)
	u := s.done(t, "undo", b.CallID)
	if holds() != "by hand\n" {
		t.Errorf("put back: %q", holds())
	}
	must(t, s.lab.WriteNodeFile("pve1", "/opt/app.conf", "port = 1\n"))
	s.done(t, "undo", a.CallID)
	if holds() != "nothing" {
		t.Errorf("the upload is not removed: %q", holds())
	}
	must(t, s.lab.WriteNodeFile("pve1", "/opt/app.conf", strings.Repeat("x", 65)))
	before := len(s.lab.Effects())
	if c := s.try(t, "call", "proxmox_upload_file_to_host",
		`{"local_path":"app.conf","host_path":"/opt/app.conf","overwrite":true}`); c.code != 1 ||
		!strings.Contains(c.text, "larger than the 64 bytes") || len(holds()) != 65 {
		t.Errorf("what cannot be kept is replaced: %d %s, now %q (%d effects)", c.code, c.text,
			holds(), len(s.lab.Effects())-before)
	}
	for id, want := range map[string]string{u.CallID: "undoes call " + b.CallID,
		b.CallID: "undone by call " + u.CallID} {
		out, err := s.command("audit", "show", id).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("audit show: %v, want %q\n%s", err, want, out)
		}
	}
	out, err := s.command("policy", "replay", filepath.Join(s.dir, "site"),
		"--json").CombinedOutput()
	if err != nil {
		t.Errorf("the same site decides otherwise: %v\n%s", err, out)
	}
}

// An undo restores the values of a guest and starts a service again. It reports what it cannot
// undo.
func TestValuesAndServicesAreRestored(t *testing.T) {
	s := undoing(t, "")
	run := func(command string) ended {
		return s.done(t, "call", "proxmox_host_exec_command",
			fmt.Sprintf(`{"command":%q}`, command))
	}
	memory := func() (is string) {
		must(t, s.lab.Edit(func(st *pvelab.State) error {
			for _, g := range st.Guests {
				if g.VMID == 104 {
					is = g.Config["memory"] + "/" + g.Config["onboot"]
				}
			}
			return nil
		}))
		return is
	}
	was := memory()
	a := run("pct set 104 --memory 777 --onboot 1")
	if memory() == was {
		t.Fatal("nothing was set")
	}
	s.done(t, "undo", a.CallID)
	if memory() != was {
		t.Errorf("set back to %s, was %s", memory(), was)
	}
	b := run("systemctl stop -- cron")
	s.done(t, "undo", b.CallID)
	var state string
	must(t, s.lab.Edit(func(st *pvelab.State) error {
		for _, n := range st.Nodes {
			if n.Name == "pve1" {
				state = n.Services["cron"]
			}
		}
		return nil
	}))
	if state != "running" {
		t.Errorf("cron is %s", state)
	}
	c := run("systemctl restart -- cron")
	s.refuses(t, "the service has restarted, and what it had in memory is gone", "undo", c.CallID)
	out, err := s.command("audit", "show", c.CallID).CombinedOutput()
	if err != nil || !strings.Contains(string(out),
		"undo: none without a snapshot: the service has restarted") {
		t.Errorf("audit show: %v\n%s", err, out)
	}
}

// A host that is killed during an operation leaves a call with an unknown outcome. The call can be
// undone only if the guest has the state that the operation leaves. Otherwise the refusal names the
// step.
func TestAKilledCallIsUndoneOnlyWhereItsEndCanBeSeen(t *testing.T) {
	s := undoing(t, "")
	cmd := s.command("call", "start_guest", `{"guest_id":104}`)
	s.lab.SetLatency(500 * time.Millisecond)
	must(t, cmd.Start())
	waitFor(t, "the start", func() bool { return slices.Contains(s.commands(), "pct start 104") })
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	s.lab.SetLatency(0)
	files, err := filepath.Glob(filepath.Join(s.dir, "lab/journal/*.jsonl"))
	must(t, err)
	id := ""
	for _, f := range files {
		data, err := os.ReadFile(f)
		must(t, err)
		if m := regexp.MustCompile(
			`"call_id":"([0-9A-V]{26})","kind":"call"[^\n]*"tool":"start_guest"`).FindSubmatch(
			data); m != nil {
			id = string(m[1])
		}
	}
	if id == "" {
		t.Fatal("the call is not in the journal")
	}
	waitFor(t, "the end of what was begun", func() bool { return s.status(t, 104) == "running" })
	runs := func(on bool) {
		must(t, s.lab.Edit(func(st *pvelab.State) error {
			for _, g := range st.Guests {
				if g.VMID == 104 {
					g.Running = on
				}
			}
			return nil
		}))
	}
	runs(false)
	s.refuses(t, "how step 1 of it ended, pct start 104 on pve1, is not known", "undo", id)
	runs(true)
	s.done(t, "undo", id)
	if s.status(t, 104) != "stopped" {
		t.Errorf("after the undo: %s", s.status(t, 104))
	}
}

// Policy requires plans of yellow calls: nobody is asked, and the journal contains the plan.
func TestAYellowCallIsPlannedFirstWherePolicyAsks(t *testing.T) {
	s := newSite(t)
	s.write(t, "site/data.yaml", s.read(t, "site/data.yaml")+"\nplan_first: {tier: yellow}\n")
	a := s.done(t, "call", "proxmox_container_exec_command", `{"vmid":101,"command":"hostname"}`)
	out, err := s.command("audit", "show", a.CallID).CombinedOutput()
	if err != nil || !strings.Contains(string(out), ", complete, made by") ||
		!strings.Contains(string(out), "1  allowed  succeeded") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The snapshots of the host are a tool: one's own, and everybody's for roles that the site names.
func TestSnapshotsOfTheHostAreListed(t *testing.T) {
	s := snapshotting(t, "tier: yellow, optional: false, keep: 5, keep_days: 7")
	a := s.done(t, "call", "start_guest", `{"guest_id":104}`)
	if l := s.done(t, "call", "list_snapshots", `{}`); !strings.Contains(l.text, a.CallID) {
		t.Errorf("%s", l.text)
	}
	s.refuses(t, "your own calls", "call", "list_snapshots", `{"all":true}`)
	s.write(t, "site/data.yaml", strings.Replace(s.read(t, "site/data.yaml"),
		"snapshot: {tier: yellow,", "snapshot: {seers: [operator], tier: yellow,", 1))
	if l := s.done(t, "call", "list_snapshots", `{"all":true}`); !strings.Contains(l.text,
		a.CallID) {
		t.Errorf("%s", l.text)
	}
}

// Requests above green are planned, and none is sent.
func TestPlanningARequestSendsNothing(t *testing.T) {
	var sent atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		sent.Add(1)
	}))
	defer srv.Close()
	at, err := url.Parse(srv.URL)
	must(t, err)
	s := newSite(t, filepath.Join(plugins, "web.wasm"), filepath.Join(plugins, "llm.wasm"))
	s.rewrite(t,
		"\ntiers:\n", "\ntiers:\n  \"tool:curl_execute\": yellow\n  \"tool:llm_query\": yellow\n",
		"blob_write, ask,", "blob_write, ask, http_request,",
		"usd_micros_per_day: 0", "usd_micros_per_day: 100000",
		"\negress: {}\n", "\negress:\n  127.0.0.1: {schemes: [http], ports: ["+at.Port()+
			"], methods: [GET, POST], classes: [loopback], max_hops: 0, max_body_bytes: 2000}\n")
	s.write(t, "config.toml", s.read(t, "config.toml")+fmt.Sprintf(
		"\n[egress]\nusd_micros_per_day = 2500\n[[egress.prices]]\norigin = %q\nmodel = \"m\"\n"+
			"input_usd_micros = 2000000\noutput_usd_micros = 10000000\n", srv.URL))
	for tool, args := range map[string]string{
		"curl_execute": `{"url":"` + srv.URL + `/a","method":"POST","data":"x=1"}`,
		"llm_query": `{"provider":"openai","prompt":"hello","model":"m","base_url":"` + srv.URL +
			`/v1","credential":"none","max_tokens":5}`,
	} {
		a := s.once(t, "plan", tool, args)
		if a.code != 0 || a.Outcome != "planned" || !strings.Contains(a.text, `"method":"POST"`) ||
			!strings.Contains(a.text, `"complete":true`) {
			t.Errorf("%s: %d %s", tool, a.code, a.text)
		}
	}
	if n := sent.Load(); n != 0 {
		t.Errorf("%d requests were sent for plans", n)
	}
}

// A call that must follow its plan saves the answer under the planned name, whatever the answer is.
func TestAnAnswerIsSavedAsItWasPlanned(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"by":%q}`, r.Method)
	}))
	defer srv.Close()
	at, err := url.Parse(srv.URL)
	must(t, err)
	s := newSite(t, filepath.Join(plugins, "web.wasm"))
	s.rewrite(t, "\ntiers:\n", "\nplan_first: {tools: [curl_execute]}\ntiers:\n"+
		"  \"tool:curl_execute\": yellow\n", "blob_write, ask,", "blob_write, ask, http_request,",
		"\negress: {}\n", "\negress:\n  127.0.0.1: {schemes: [http], ports: ["+at.Port()+
			"], methods: [GET, POST], classes: [loopback], max_hops: 0, max_body_bytes: 2000}\n")
	for claim, x := range map[string]struct{ args, end, body string }{
		"a read":            {`"method":"GET"`, ".json", `{"by":"GET"}`},
		"a change":          {`"method":"POST","data":"x"`, ".bin", `{"by":"POST"}`},
		"a filtered read":   {`"method":"GET","jq_filter":".by"`, ".json", `"GET"`},
		"a filtered change": {`"method":"POST","data":"x","jq_filter":".by"`, ".json", `"POST"`},
	} {
		dir := strings.ReplaceAll(claim, " ", "-")
		args := `{"url":"` + srv.URL + `/a","output_dir":"` + dir + `",` + x.args + `}`
		if a := s.once(t, "plan", "curl_execute", args); !strings.Contains(a.text,
			`"complete":true`) || !strings.Contains(a.text, "/made/") &&
			!strings.Contains(a.text, "response-") {
			t.Errorf("%s: the plan: %s", claim, a.text)
		}
		a := s.once(t, "call", "curl_execute", args)
		files, err := filepath.Glob(filepath.Join(s.dir, "lab/workspace/*", dir,
			"response-*"+x.end))
		if a.Outcome != "succeeded" || err != nil || len(files) != 1 {
			t.Errorf("%s: %s %q %v", claim, a.text, files, err)
			continue
		}
		if body, err := os.ReadFile(files[0]); err != nil || strings.TrimSpace(string(body)) !=
			x.body {
			t.Errorf("%s: %s %v", claim, body, err)
		}
	}
}

// A call uses up its approval even if its host is killed. The next call waits for a person again.
func TestAnApprovalIsUsedOnceEvenIfTheHostIsKilled(t *testing.T) {
	s := newSite(t)
	waits := s.once(t, "call", "proxmox_start_container", `{"vmid":102}`)
	if waits.code != 4 {
		t.Fatalf("%d %s", waits.code, waits.text)
	}
	if out, err := s.command("approvals", "approve",
		waits.ApprovalID).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	s.lab.SetLatency(500 * time.Millisecond)
	cmd := s.command("call", "proxmox_start_container", `{"vmid":102}`)
	must(t, cmd.Start())
	waitFor(t, "the start", func() bool { return slices.Contains(s.commands(), "pct start 102") })
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	s.lab.SetLatency(0)
	waitFor(t, "the end of what was begun", func() bool { return s.status(t, 102) == "running" })
	must(t, s.lab.Edit(func(st *pvelab.State) error {
		for _, g := range st.Guests {
			if g.VMID == 102 {
				g.Running = false
			}
		}
		return nil
	}))
	began := len(s.commands())
	if again := s.once(t, "call", "proxmox_start_container", `{"vmid":102}`); again.code != 4 ||
		again.ApprovalID == waits.ApprovalID || len(s.commands()) != began {
		t.Errorf("%d %s; reached the node: %q", again.code, again.text, s.commands()[began:])
	}
}

// A snapshot that fails, at once or half-way, leaves a guest that was not changed.
func TestASnapshotThatFailsLeavesTheGuestAsItWas(t *testing.T) {
	s := snapshotting(t, "tier: yellow, optional: false, keep: 5, keep_days: 7")
	must(t, s.lab.Lock(104, "backup"))
	a := s.try(t, "call", "start_guest", `{"guest_id":104}`)
	if a.code != 1 || !strings.Contains(a.text, "no_snapshot") || s.status(t, 104) != "stopped" ||
		slices.Contains(s.commands(), "pct start 104") {
		t.Errorf("%d %s; reached the node: %q", a.code, a.text, s.commands())
	}
	if all := s.snapshots(t); len(all) != 0 {
		t.Errorf("recorded %+v", all)
	}
	s.refuses(t, "has no record of a call", "undo", a.CallID)
}
