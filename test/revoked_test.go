package test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// withinRevoked bounds the time from a change to the end of the calls that it concerns.
const withinRevoked = 500 * time.Millisecond

// tokenSite is a site with the module steps, whose only caller has a token.
func tokenSite(t *testing.T) (s *site, token string) {
	t.Helper()
	s = newSite(t, "../build/modules/steps.wasm")
	s.append(t, "\n[identity]\ntokens = %q\n[[identity.principals]]\nid = \"demo\"\n",
		filepath.Join(s.dir, "tokens.json"))
	out, err := s.command("token", "new", "demo").Output()
	must(t, err)
	return s, strings.TrimSpace(string(out))
}

// running is a call of steps_run.
type running struct {
	answer *mcp.CallToolResult
	err    error
	at     time.Time // when it ended
}

// steps begins a call of n operations, of 10 ms each, and returns when some have been done.
func (s *site) steps(t *testing.T, session *mcp.ClientSession, n int) <-chan running {
	t.Helper()
	s.lab.SetLatency(10 * time.Millisecond)
	before, ended := len(s.lab.Effects()), make(chan running, 1)
	go func() {
		answer, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "steps_run",
			Arguments: map[string]any{"n": n}})
		ended <- running{answer, err, time.Now()}
	}()
	for len(s.lab.Effects()) < before+5 {
		select {
		case r := <-ended:
			t.Fatalf("the call ended: %+v", r)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return ended
}

// When a right is revoked, a running call stops at its next operation, within half a second of
// the change. Nobody tells the server: it sees for itself. A changed policy takes longer to load on
// a busy machine; no operation is decided meanwhile.
func TestEachRevocationStopsARunningCall(t *testing.T) {
	const principal = "  demo: {auth: [config, token], roles: [operator]}"
	data := func(pairs ...string) func(*testing.T, *site, string) {
		return func(t *testing.T, s *site, _ string) { s.rewrite(t, pairs...) }
	}
	verb := func(args ...string) func(*testing.T, *site, string) {
		return func(t *testing.T, s *site, _ string) { must(t, s.command(args...).Run()) }
	}
	for _, c := range []struct {
		name   string
		change func(*testing.T, *site, string)
	}{
		{"the token is revoked", func(t *testing.T, s *site, token string) {
			must(t, s.command("token", "revoke", token[:12]).Run())
		}},
		{"the principal leaves the site", data(principal, "  other: {auth: [config, token], roles: [operator]}")},
		{"its role is narrowed", data(principal, "  demo: {auth: [config, token], roles: [viewer]}")},
		{"the tool is set to black", data("\"tool:steps_run\": yellow", "\"tool:steps_run\": black")},
		{"the tool has no tier", data("  \"tool:steps_run\": yellow\n", "")},
		{"the node is protected", data("protected:\n  nodes: {}", "protected:\n  nodes: {pve1: {reason: production}}")},
		{"the plugin leaves the lock", func(t *testing.T, s *site, _ string) { s.relock(t, "steps") }},
		{"the lock is emptied", func(t *testing.T, s *site, _ string) { s.relock(t, "steps", "containers") }},
		{"the module is revoked", func(t *testing.T, s *site, _ string) {
			verb("plugin", "revoke", digestIn(t, s, "steps"))(t, s, "")
		}},
		{"the plugin is revoked by name", verb("plugin", "revoke", "steps")},
		{"everything is frozen", verb("freeze", "--reason", "a test")},
		{"the principal is frozen", verb("freeze", "--principal", "demo")},
		{"the tool is frozen", verb("freeze", "--tool", "steps_run")},
		{"the node is frozen", verb("freeze", "--node", "pve1")},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, token := tokenSite(t)
			session := connect(t, s.serveHTTP(t), token)
			ended := s.steps(t, session, 9999)
			c.change(t, s, token)
			changed := time.Now()
			done, last := len(s.lab.Effects()), changed // of the operations
			var r running
			for r.at.IsZero() {
				select {
				case r = <-ended:
				case <-time.After(5 * time.Millisecond):
				}
				if n := len(s.lab.Effects()); n > done {
					done, last = n, time.Now()
				}
				if time.Since(changed) > 20*time.Second {
					t.Fatal("the call goes on")
				}
			}
			t.Logf("its last operation began %v after the change, and it ended after %v",
				last.Sub(changed).Round(time.Millisecond),
				max(0, r.at.Sub(changed)).Round(time.Millisecond))
			if took := last.Sub(changed); took > withinRevoked {
				t.Errorf("it went on for %v after the change", took)
			}
			if r.err == nil && !r.answer.IsError {
				t.Errorf("it succeeded: %+v", r.answer)
			}
			if a, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "steps_run",
				Arguments: map[string]any{"n": 1}}); err == nil && !a.IsError {
				t.Errorf("another call: %+v", a)
			}
			if n := len(s.lab.Effects()); n > done {
				t.Errorf("%d operations after the end", n-done)
			}
			if out, err := s.command("policy", "check").CombinedOutput(); err != nil {
				t.Errorf("the change makes a bad policy: %s", out)
			}
			if out, err := s.command("audit", "verify").CombinedOutput(); err != nil {
				t.Errorf("audit verify: %v %s", err, out)
			}
		})
	}
}

// relock replaces the lock by lockText.
func (s *site) relock(t *testing.T, without ...string) {
	t.Helper()
	file := filepath.Join(s.dir, "plugins.lock")
	must(t, os.WriteFile(file+".new", []byte(s.lockText(t, without...)), 0o644))
	must(t, os.Rename(file+".new", file))
}

// lockText returns a lock of the modules of the plugins' directory, without these plugins.
func (s *site) lockText(t *testing.T, without ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "all")
	must(t, lockFor(filepath.Join(s.dir, "plugins"), file))
	l, err := readLock(file)
	must(t, err)
	kept := l.Plugins[:0]
	for _, e := range l.Plugins {
		drop := slices.ContainsFunc(without, func(name string) bool {
			return strings.Contains(string(e), `"`+name+`.wasm"`)
		})
		if !drop {
			kept = append(kept, e)
		}
	}
	l.Plugins = kept
	text, err := json.MarshalIndent(l, "", "  ")
	must(t, err)
	return string(text) + "\n"
}

// digestIn returns the digest that the lock has for a plugin.
func digestIn(t *testing.T, s *site, name string) string {
	t.Helper()
	m := regexp.MustCompile(`"` + name + `",\s*"version": "[^"]*",\s*"digest": "(sha256:[0-9a-f]{64})"`).
		FindStringSubmatch(s.read(t, "plugins.lock"))
	if m == nil {
		t.Fatalf("%s is not in the lock", name)
	}
	return m[1]
}

func connect(t *testing.T, url, token string) *mcp.ClientSession {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(
		t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp",
			HTTPClient: &http.Client{Transport: bearer(token)}}, nil)
	must(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return session
}
