package test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/test/pvelab"
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
		if out, err := s.command("approvals", "approve", a.ApprovalID).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	return a
}

func (s *site) once(t *testing.T, args ...string) (a ended) {
	t.Helper()
	out, err := s.command(append([]string{args[0], "--json"}, args[1:]...)...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		a.code, a.text = exit.ExitCode(), string(exit.Stderr)
	} else {
		must(t, err)
	}
	_ = json.Unmarshal(out, &a)
	a.text += string(out)
	return a
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
	s.refuses(t, "kept nothing", "undo", u.CallID)
	s.refuses(t, "guest 104 was running after the call, and is stopped", "undo", a.CallID)
	out, err := s.command("audit", "verify").CombinedOutput()
	if err != nil {
		t.Errorf("audit verify: %v %s", err, out)
	}
}
