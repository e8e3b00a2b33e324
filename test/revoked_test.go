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

// atMost returns d, or the time that `policy check` takes now, if that is longer: a busy machine
// needs longer for everything.
func (s *site) atMost(t *testing.T, d time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	must(t, s.command("policy", "check").Run())
	return max(d, time.Since(began))
}

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
	said   string
}

// steps begins a call of n operations and returns when some have been done.
func (s *site) steps(t *testing.T, session *mcp.ClientSession, n int) <-chan running {
	t.Helper()
	before, ended := len(s.lab.Effects()), make(chan running, 1)
	go func() {
		answer, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "steps_run",
			Arguments: map[string]any{"n": n}})
		ended <- running{answer: answer, err: err, at: time.Now()}
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

// ways are the ways in, each with what makes a call of steps_run that goes on for long.
func ways(t *testing.T, s *site, token string) map[string]func() running {
	mcpCall := func(session *mcp.ClientSession) func() running {
		return func() running {
			answer, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "steps_run",
				Arguments: map[string]any{"n": 9999}})
			r := running{answer: answer, err: err, at: time.Now()}
			if answer != nil {
				text, err := json.Marshal(answer)
				must(t, err)
				r.said = string(text)
			}
			return r
		}
	}
	return map[string]func() running{
		"http":  mcpCall(connect(t, s.serveHTTP(t), token)),
		"stdio": mcpCall(s.stdio(t)),
		"cli": func() running {
			out, err := s.command("call", "--json", "steps_run", `{"n":9999}`).CombinedOutput()
			return running{err: err, at: time.Now(), said: string(out)}
		},
	}
}

// When a right is revoked, a running call stops at its next operation, within half a second of the
// change, on each transport. Nothing notifies the process; it detects the change itself. A changed
// policy takes longer to load on a busy machine, but no operation is decided in the meantime.
func TestEachRevocationStopsARunningCall(t *testing.T) {
	const principal = "  demo: {auth: [config, token], roles: [operator]}"
	data := func(pairs ...string) func(*testing.T, *site, string) {
		return func(t *testing.T, s *site, _ string) { s.rewrite(t, pairs...) }
	}
	verb := func(args ...string) func(*testing.T, *site, string) {
		return func(t *testing.T, s *site, _ string) { must(t, s.command(args...).Run()) }
	}
	all := []string{"http", "stdio", "cli"}
	for _, c := range []struct {
		name   string
		ways   []string // that it concerns
		why    string   // that the refusal names
		change func(*testing.T, *site, string)
	}{
		{"the token is revoked", all[:1], "revoked", func(t *testing.T, s *site, token string) {
			must(t, s.command("token", "revoke", token[:12]).Run())
		}},
		{"the principal leaves the site", all, "identity",
			data(principal, "  other: {auth: [config, token], roles: [operator]}")},
		{"its role is narrowed", all, "grant",
			data(principal, "  demo: {auth: [config, token], roles: [viewer]}")},
		{"the tool is set to black", all, "tier",
			data("\"tool:steps_run\": yellow", "\"tool:steps_run\": black")},
		{"the tool has no tier", all, "tier", data("  \"tool:steps_run\": yellow\n", "")},
		{"the node is protected", all, "protected",
			data("protected:\n  nodes: {}", "protected:\n  nodes: {pve1: {reason: production}}")},
		{"the plugin leaves the lock", all, "revoked", func(t *testing.T, s *site, _ string) {
			s.relock(t, "steps")
		}},
		{"the lock is emptied", all, "revoked", func(t *testing.T, s *site, _ string) {
			s.relock(t, "steps", "containers")
		}},
		{"the module is revoked", all, "freeze", func(t *testing.T, s *site, _ string) {
			verb("plugin", "revoke", digestIn(t, s, "steps"))(t, s, "")
		}},
		{"the plugin is revoked by name", all, "freeze", verb("plugin", "revoke", "steps")},
		{"everything is frozen", all, "freeze", verb("freeze", "--reason", "a test")},
		{"the principal is frozen", all, "freeze", verb("freeze", "--principal", "demo")},
		{"the tool is frozen", all, "freeze", verb("freeze", "--tool", "steps_run")},
		{"the node is frozen", all, "freeze", verb("freeze", "--node", "pve1")},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, token := tokenSite(t)
			ended := map[string]chan running{}
			calls := ways(t, s, token)
			for _, way := range c.ways {
				before, call := len(s.lab.Effects()), calls[way]
				ended[way] = make(chan running, 1)
				go func() { ended[way] <- call() }()
				waitFor(t, "the call by "+way, func() bool {
					select {
					case r := <-ended[way]:
						t.Fatalf("the call by %s ended: %v %s", way, r.err, r.said)
					default:
					}
					return s.has(t, `"type":"intent".*"op":"ssh_exec".*"source":"`+way+`"`) &&
						len(s.lab.Effects()) > before+5
				})
			}
			within := s.atMost(t, 500*time.Millisecond)
			c.change(t, s, token)
			changed := time.Now()
			done, last := len(s.lab.Effects()), changed // of the operations
			for _, way := range c.ways {
				var r running
				for r.at.IsZero() {
					select {
					case r = <-ended[way]:
					case <-time.After(5 * time.Millisecond):
					}
					if n := len(s.lab.Effects()); n > done {
						done, last = n, time.Now()
					}
					if time.Since(changed) > time.Minute {
						t.Fatalf("the call by %s goes on", way)
					}
				}
				t.Logf("by %s it ended after %v", way,
					max(0, r.at.Sub(changed)).Round(time.Millisecond))
				if r.err == nil && (r.answer == nil || !r.answer.IsError) {
					t.Errorf("by %s it succeeded: %s", way, r.said)
				}
				if !strings.Contains(r.said, c.why) &&
					(r.err == nil || !strings.Contains(r.err.Error(), c.why)) {
					t.Errorf("by %s, want a refusal by %s: %v %s", way, c.why, r.err, r.said)
				}
			}
			t.Logf("the last operation began %v after the change",
				last.Sub(changed).Round(time.Millisecond))
			if took := last.Sub(changed); took > within {
				t.Errorf("it went on for %v after the change, want at most %v", took, within)
			}
			for _, way := range c.ways {
				if r := calls[way](); r.err == nil && (r.answer == nil || !r.answer.IsError) {
					t.Errorf("another call by %s: %s", way, r.said)
				}
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
	m := regexp.MustCompile(`"` + name +
		`",\s*"version": "[^"]*",\s*"digest": "(sha256:[0-9a-f]{64})"`).
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
