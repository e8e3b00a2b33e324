package test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// terminalSite is a site whose red calls wait for ann, who answers in a terminal.
func terminalSite(t *testing.T, modules ...string) *site {
	t.Helper()
	s := newSite(t, modules...)
	s.rewrite(t, "\ntiers:\n", "\ntiers:\n  \"tool:deviant_act\": red\n", "  write: []",
		"  write: [/opt]", "# \"tool:proxmox_", "\"tool:proxmox_", ": yellow\n", ": red\n")
	data := filepath.Join(s.dir, "site", "data.yaml")
	text, err := os.ReadFile(data)
	must(t, err)
	text = regexp.MustCompile(`(?s)\n  tools: \[proxmox_start.*?\]`).ReplaceAll(text,
		[]byte("\n  tools: []"))
	text = regexp.MustCompile(`(?m)^  demo: .*`).ReplaceAll(text,
		[]byte("  demo: {auth: [config], roles: [operator]}"))
	must(t, os.WriteFile(data, text, 0o644))
	config, err := os.ReadFile(s.config)
	must(t, err)
	must(t, os.WriteFile(s.config, append(config,
		"\n[approval]\napprovers = [\"ann\"]\nwait = \"60s\"\n"...), 0o600))
	work := filepath.Join(s.dir, "lab/workspace/demo")
	must(t, os.MkdirAll(work, 0o700))
	must(t, os.WriteFile(filepath.Join(work, "app.conf"), []byte("port = 1\n"), 0o600))
	return s
}

// said is what call --json prints.
type said struct {
	Outcome    string
	ApprovalID string `json:"approval_id"`
	Error      string
	Refused    []struct {
		Failed []string
		Deny   []struct{ ID, Msg string }
	}
	all string
}

func (s said) why() (all string) {
	for _, r := range s.Refused {
		for _, d := range r.Deny {
			all += d.ID + ": " + d.Msg + "\n"
		}
	}
	return all
}

// begun is a call that waits for ann.
type begun struct {
	s    *site
	id   string
	done chan said
}

// begin starts a call from the terminal and waits until it waits for a person.
func (s *site) begin(t *testing.T, tool, args string) *begun {
	t.Helper()
	b := &begun{s: s, done: make(chan said, 1)}
	known := map[string]bool{}
	for _, id := range s.requests(t) {
		known[id] = true
	}
	cmd := s.command("call", "--json", tool, args)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, t.Output()
	must(t, cmd.Start())
	go func() {
		_ = cmd.Wait()
		var r said
		_ = json.Unmarshal(out.Bytes(), &r)
		r.all = out.String()
		b.done <- r
	}()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(
		200 * time.Millisecond) {
		for _, id := range s.requests(t) {
			if !known[id] {
				b.id = id
				return b
			}
		}
		select {
		case r := <-b.done:
			t.Fatalf("the call did not wait: %s", r.all)
		default:
		}
	}
	t.Fatal("the call does not wait")
	return nil
}

// requests are those that wait.
func (s *site) requests(t *testing.T) (ids []string) {
	t.Helper()
	out, err := s.command("--json", "approvals", "list", "--as", "ann").Output()
	must(t, err)
	for _, m := range regexp.MustCompile(
		`"id":"([a-z0-9]{16})"[^\n]*"state":"waiting"`).FindAllSubmatch(out, -1) {
		ids = append(ids, string(m[1]))
	}
	return ids
}

// approved lets the call go on, and returns how it ended.
func (b *begun) approved(t *testing.T) said {
	t.Helper()
	out, err := b.s.command("approvals", "approve", "--as", "ann", b.id).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	select {
	case r := <-b.done:
		return r
	case <-time.After(2 * time.Minute):
		t.Fatal("the call does not end")
		return said{}
	}
}

func (s *site) run(t *testing.T, argv ...string) {
	t.Helper()
	code := s.lab.Run(t.Context(), "pve1", argv, nil, strings.NewReader(""), t.Output(), t.Output())
	if code != 0 {
		t.Fatalf("%q: exit code %d", argv, code)
	}
}

// Somebody else acts between a person's approval of a plan and its execution. The call then does
// nothing, and names what has changed.
func TestWhatChangesAfterThePlanStopsTheCall(t *testing.T) {
	s := terminalSite(t, filepath.Join(plugins, "guests.wasm"),
		filepath.Join(plugins, "hostops.wasm"))
	opt := filepath.Join(s.dir, "lab/workspace/demo/app.conf")
	for _, c := range []struct {
		name, tool, args string
		meanwhile        func(t *testing.T)
		why, never       string
	}{
		{"a guest was started", "create_snapshot", `{"guest_id":104,"name":"before"}`,
			func(t *testing.T) { s.run(t, "pct", "start", "104") },
			"planned: guest 104 (snapct) was stopped when the call was planned, and is running: " +
				"plan the call again",
			"pct snapshot"},
		{"a guest has another configuration", "create_snapshot", `{"guest_id":104,"name":"after"}`,
			func(t *testing.T) { s.run(t, "pct", "set", "104", "--memory", "300") },
			"planned: guest 104 (snapct) has another configuration than when the call was " +
				"planned: plan the call again",
			"pct snapshot"},
		{"a file on the node is there by now", "proxmox_upload_file_to_host",
			`{"local_path":"app.conf","host_path":"/opt/app.conf"}`,
			func(t *testing.T) { s.run(t, "cp", "/etc/hostname", "/opt/app.conf") },
			"file: it is there already", "write /opt"},
		{"a file on the node has another size", "proxmox_upload_file_to_host",
			`{"local_path":"app.conf","host_path":"/opt/app.conf","overwrite":true}`,
			func(t *testing.T) { s.run(t, "cp", "/etc/passwd", "/opt/app.conf") },
			"planned: the approved plan has another next step", "rename"},
		{"a local file has other bytes", "proxmox_upload_file_to_host",
			`{"local_path":"app.conf","host_path":"/opt/other.conf"}`,
			func(t *testing.T) { must(t, os.WriteFile(opt, []byte("port = 2\n"), 0o600)) },
			"", "rename"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := s.begin(t, c.tool, c.args)
			c.meanwhile(t)
			n := len(s.lab.Effects())
			r := b.approved(t)
			if r.Outcome == "succeeded" && len(r.Refused) == 0 ||
				!strings.Contains(r.why(), c.why) {
				t.Errorf("%s, want %q: %s", r.Outcome, c.why, r.all)
			}
			for _, line := range first(since(s, n)) {
				if strings.Contains(line, c.never) {
					t.Errorf("a node saw %q", line)
				}
			}
		})
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "lab/workspace/demo/app.conf"))
	must(t, err)
	if string(text) != "port = 2\n" {
		t.Errorf("%q", text)
	}
}

func first[T, U any](v T, _ U) T { return v }
