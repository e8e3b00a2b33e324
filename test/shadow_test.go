package test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A candidate protects guest 105 and no longer 103. It has no effect on calls. The server records
// what it would change, and replay finds the same in the journal. It is promoted and reverted while
// the server runs.
func TestACandidateDecidesBesideTheSite(t *testing.T) {
	s := newSite(t)
	next := filepath.Join(s.dir, "next")
	must(t, os.CopyFS(next, os.DirFS(filepath.Join(s.dir, "site"))))
	s.swap(t, "next/data.yaml", `"103": {reason: management VM of the lab}`,
		`"105": {reason: customers use it}`)
	s.configure(t, "[policy]\n", "[policy]\nshadow = \""+next+"\"\n")
	session := s.besideCandidate(t)
	status := func(vmid int) (refused bool) {
		t.Helper()
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "proxmox_container_status", Arguments: map[string]any{"vmid": vmid}})
		must(t, err)
		return res.IsError
	}
	eventually := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(60 * time.Second); !is(); time.Sleep(200 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("never: ", what)
			}
		}
	}
	eventually("the candidate is asked", func() bool {
		if status(101) || status(105) || !status(103) {
			t.Fatal("the candidate changed what is enforced")
		}
		out, _ := s.command("policy", "shadow").Output()
		return strings.Contains(string(out), "NEWLY ALLOWED") &&
			strings.Contains(string(out), "of demo, by protected")
	})
	s.carries(t, "NEWLY ALLOWED", true)
	s.carries(t, "newly refused", false)
	before := s.read(t, "site/data.yaml")
	out, err := s.command("policy", "promote").CombinedOutput()
	if code := exitOf(err); code != 7 || s.read(t, "site/data.yaml") != before ||
		!strings.Contains(string(out), "not promoted: it changes decisions") {
		t.Fatalf("exit %d: %s", code, out)
	}
	out, err = s.command("policy", "promote", "--accept").CombinedOutput()
	if err != nil || s.read(t, "site/data.yaml") == before {
		t.Fatalf("%v: %s", err, out)
	}
	eventually("the running server decides with the candidate", func() bool { return status(105) })
	out, err = s.command("policy", "promote", "--revert").CombinedOutput()
	if err != nil || s.read(t, "site/data.yaml") != before {
		t.Fatalf("%v: %s", err, out)
	}
	eventually("the running server decides with the site again", func() bool {
		return !status(105)
	})
	counts := s.shadowed(t, session)
	for result, n := range counts {
		if n == 0 || result == "dropped" {
			t.Errorf("%v", counts)
		}
	}
}

// besideCandidate starts the host on stdio, and returns when the candidate decides too: what is
// decided before is dropped.
func (s *site) besideCandidate(t *testing.T) *mcp.ClientSession {
	t.Helper()
	log, err := os.Create(filepath.Join(s.dir, "log"))
	must(t, err)
	cmd := s.command("serve")
	cmd.Stderr = log
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	must(t, err)
	t.Cleanup(func() { _ = session.Close() })
	waitFor(t, "the candidate", func() bool {
		return strings.Contains(s.read(t, "log"), "a candidate policy decides beside the one")
	})
	return session
}

// shadowed waits until the counts of differences have not changed for a second, ends the host, and
// returns all counts.
func (s *site) shadowed(t *testing.T, session *mcp.ClientSession) map[string]int {
	t.Helper()
	report := func() map[string]int {
		var c struct{ Counts map[string]int }
		out, _ := s.command("policy", "shadow", "--json").Output()
		must(t, json.Unmarshal(out, &c))
		return c.Counts
	}
	last := report()
	waitFor(t, "a shadow at rest", func() bool {
		time.Sleep(time.Second)
		before := last
		last = report()
		return maps.Equal(last, before)
	})
	must(t, session.Close())
	return report()
}

// carries asserts that the journal has a change by a candidate, in its chains, and that the call
// shows it.
func (s *site) carries(t *testing.T, change string, allow bool) {
	t.Helper()
	out, err := s.command("audit", "tail", "--json", "-n", "1000").Output()
	must(t, err)
	var found struct {
		Shadow struct {
			Call     string `json:"call_id"`
			Decision string `json:"decision_id"`
			Revision string
			Allow    bool
			Tier     string
			Failed   []string
			Change   string
		}
	}
	a := &found.Shadow
	for line := range strings.Lines(string(out)) {
		found.Shadow.Change = ""
		if must(t, json.Unmarshal([]byte(line), &found)); a.Change == change {
			break
		}
	}
	if a.Change != change || a.Allow != allow || a.Revision == "" || a.Tier != "green" ||
		a.Decision == "" || (len(a.Failed) == 0) != allow {
		t.Fatalf("no change is %s: %+v", change, *a)
	}
	for _, args := range [][]string{{"show", a.Call}, {"tail", "-n", "1000"}} {
		out, err = s.command(append([]string{"audit"}, args...)...).Output()
		if err != nil || !strings.Contains(string(out), "decision "+a.Decision+": "+change+
			"; candidate ") {
			t.Fatalf("%v: %s", err, out)
		}
	}
	must(t, s.command("audit", "verify").Run())
}

// The shadow and replay decide the same records alike.
func TestTheShadowFindsWhatReplayFinds(t *testing.T) {
	s := newSite(t)
	next := filepath.Join(s.dir, "next")
	must(t, os.CopyFS(next, os.DirFS(filepath.Join(s.dir, "site"))))
	s.swap(t, "next/data.yaml", `"103": {reason: management VM of the lab}`,
		`"105": {reason: customers use it}`)
	s.swap(t, "next/data.yaml", "tool_calls_per_minute: ", "tool_calls_per_minute: 3 # ")
	s.configure(t, "[policy]\n", "[policy]\nshadow = \""+next+"\"\n")
	session := s.besideCandidate(t)
	for i := range 40 {
		_, err := session.CallTool(t.Context(), &mcp.CallToolParams{
			Name:      []string{"proxmox_container_status", "proxmox_list_containers"}[i%2],
			Arguments: []map[string]any{{"vmid": 101 + i%6}, {}}[i%2]})
		must(t, err)
	}
	c := s.shadowed(t, session)
	var replay struct {
		Same                                     int
		NewlyAllowed, NewlyRefused, OtherReasons []any
	}
	out, _ := s.command("policy", "replay", "--json", next).Output()
	must(t, json.Unmarshal([]byte(strings.NewReplacer("newly_allowed", "NewlyAllowed",
		"newly_refused", "NewlyRefused", "other_reasons", "OtherReasons").Replace(string(out))),
		&replay))
	if c["dropped"] > 0 || c["the same"] != replay.Same || c["the same"] == 0 ||
		c["NEWLY ALLOWED"] != len(replay.NewlyAllowed) || c["NEWLY ALLOWED"] == 0 ||
		c["newly refused"] != len(replay.NewlyRefused) || c["newly refused"] == 0 ||
		c["refused for other reasons"] != len(replay.OtherReasons) {
		t.Errorf("shadow %v, replay %d %d %d %d", c, replay.Same, len(replay.NewlyAllowed),
			len(replay.NewlyRefused), len(replay.OtherReasons))
	}
}

// exitOf returns the exit code that an error of a command stands for.
func exitOf(err error) int {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}
