package test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/needs/pgtest"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// twoHosts are two hosts with the module steps, one lab, one policy and one database.
type twoHosts struct {
	a, b     *site
	server   *pgtest.Server
	database string
	token    string
	page     string // metrics and readiness of b
}

// newTwoHosts makes two hosts. urlOf returns the URL of the database for each; nil is direct.
func newTwoHosts(t *testing.T, urlOf func(*pgtest.Server, string) (a, b string)) *twoHosts {
	t.Helper()
	w := &twoHosts{server: pgtest.Start(t), page: freeAddress(t)}
	w.database = w.server.Database()
	urlA, urlB := w.server.URL(w.database), w.server.Socket(w.database)
	if urlOf != nil {
		urlA, urlB = urlOf(w.server, w.database)
	}
	w.a = newSite(t, "../build/modules/steps.wasm")
	w.a.append(t, "\n[approval]\nwait = \"300ms\"\napprovers = [\"ann\"]\n[identity]\n"+
		"tokens_in_store = true\n[[identity.principals]]\nid = \"demo\"\n")
	w.b = &site{dir: t.TempDir(), lab: w.a.lab}
	w.b.config = filepath.Join(w.b.dir, "config.toml")
	text := strings.ReplaceAll(w.a.read(t, "config.toml"),
		filepath.Join(w.a.dir, "lab", "journal"), filepath.Join(w.b.dir, "lab", "journal"))
	must(t, os.WriteFile(w.b.config, []byte(text), 0o600))
	w.a.append(t, "[store]\nurl = %q\n", urlA)
	w.b.append(t, "[store]\nurl = %q\n[front]\nmetrics = %q\n", urlB, w.page)
	cmd := w.a.command("token", "new", "demo")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	must(t, err)
	w.token = strings.TrimSpace(string(out))
	return w
}

// both begins a session on each host.
func (w *twoHosts) both(t *testing.T) (a, b *mcp.ClientSession) {
	t.Helper()
	return connect(t, w.a.serveHTTP(t), w.token), connect(t, w.b.serveHTTP(t), w.token)
}

// runs runs a command on a host, which must succeed.
func (s *site) runs(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.command(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// An approval is one on all hosts: asked on one, answered on another, used once on whichever calls
// first, and taken back for all.
func TestAnApprovalOnOneHostCountsOnAll(t *testing.T) {
	w := newTwoHosts(t, nil)
	a, b := w.both(t)
	waitFor(t, "both hosts", func() bool {
		return strings.Count(w.b.runs(t, "cluster", "status", "--json"), `"policy_revision"`) == 2
	})
	if table := w.a.runs(t, "cluster", "status"); strings.Contains(table, "another") ||
		strings.Contains(table, "missed") || !strings.Contains(table, w.b.dir) {
		t.Errorf("two alike hosts:\n%s", table)
	}
	const stop = "proxmox_stop_container"
	on := map[string]any{"vmid": 110, "node": "pve2"}
	how, id, _ := outcome(t, a, stop, on)
	if how != "waiting" {
		t.Fatalf("asked on a: %s", how)
	}
	if how, same, _ := outcome(t, b, stop, on); how != "waiting" || same != id {
		t.Errorf("asked on b too: %s as %s, want %s", how, same, id)
	}
	w.b.runs(t, "approvals", "approve", "--as", "ann", id)
	w.a.runs(t, "approvals", "deny", "--as", "ann", id) // which takes it back
	if how, _, text := outcome(t, b, stop, on); how != "refused" || !strings.Contains(text, "ann") {
		t.Errorf("taken back on a, called on b: %s %s", how, text)
	}
	const start = "proxmox_start_container"
	on = map[string]any{"vmid": 102, "node": "pve1"}
	how, id, text := outcome(t, a, start, on)
	if how != "waiting" {
		t.Fatalf("asked on a: %s %s", how, text)
	}
	w.b.runs(t, "approvals", "approve", "--as", "ann", id)
	type ended struct{ how, text string }
	both := make(chan ended)
	for _, session := range []*mcp.ClientSession{a, b} {
		go func() {
			how, _, text := outcome(t, session, start, on)
			both <- ended{how, text}
		}()
	}
	one, two := <-both, <-both
	if (one.how == "succeeded") == (two.how == "succeeded") {
		t.Errorf("one yes, called on both: %+v %+v", one, two)
	}
	starts := 0
	for _, e := range w.a.lab.Effects() {
		if strings.Contains(fmt.Sprint(e), "pct start 102") {
			starts++
		}
		if strings.Contains(fmt.Sprint(e), "pct stop 110") {
			t.Errorf("it ran after it was taken back: %v", e)
		}
	}
	if starts != 1 {
		t.Errorf("it ran %d times", starts)
	}
	for _, s := range []*site{w.a, w.b} {
		s.runs(t, "audit", "verify")
	}
}

// A call that waits on one host continues when a person answers on another.
func TestAWaitingCallReceivesTheAnswerOfAnotherHost(t *testing.T) {
	w := newTwoHosts(t, nil)
	text := strings.Replace(w.a.read(t, "config.toml"), `wait = "300ms"`, `wait = "60s"`, 1)
	must(t, os.WriteFile(w.a.config, []byte(text), 0o600))
	a := connect(t, w.a.serveHTTP(t), w.token)
	ended := make(chan string, 1)
	go func() {
		how, _, _ := outcome(t, a, "proxmox_container_status", map[string]any{"vmid": 101})
		if how == "succeeded" {
			how, _, _ = outcome(t, a, "proxmox_start_container",
				map[string]any{"vmid": 102, "node": "pve1"})
		}
		ended <- how
	}()
	id := ""
	waitFor(t, "the request", func() bool {
		out := w.b.runs(t, "approvals", "list", "--json", "--as", "ann")
		if m := regexp.MustCompile(`"id": ?"([^"]+)"`).FindStringSubmatch(out); m != nil {
			id = m[1]
		}
		return id != ""
	})
	w.b.runs(t, "approvals", "approve", "--as", "ann", id)
	answered := time.Now()
	if how := <-ended; how != "succeeded" || time.Since(answered) > 30*time.Second {
		t.Errorf("it ended %s, %s after the answer", how, time.Since(answered))
	} else {
		t.Logf("it ended %s after the answer", time.Since(answered).Round(time.Millisecond))
	}
}

// A revocation on one host stops a running call on another host, and the next call.
func TestARevocationOnOneHostStopsCallsOnAnother(t *testing.T) {
	for name, url := range map[string]func(*pgtest.Server, string) (a, b string){
		"direct": nil,
		"pgbouncer": func(s *pgtest.Server, database string) (a, b string) {
			at := s.Bouncer()(database)
			return at, at
		},
	} {
		for what, c := range map[string]struct {
			take, give []string
			why        string
		}{
			"everything is frozen": {[]string{"freeze", "--reason", "a test"}, []string{"thaw"},
				"freeze"},
			"the tool is frozen": {[]string{"freeze", "--tool", "steps_run"},
				[]string{"thaw", "--tool", "steps_run"}, "freeze"},
			"the token is revoked": {[]string{"token", "revoke", "TOKEN"}, nil, "revoked"},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				w := newTwoHosts(t, url)
				b := connect(t, w.b.serveHTTP(t), w.token)
				if c.take[0] == "token" {
					c.take[2] = w.token[:12]
				}
				ended := w.b.steps(t, b, 9999)
				within := w.a.atMost(t, time.Second)
				w.a.runs(t, c.take...)
				changed, n := time.Now(), len(w.b.lab.Effects())
				r := <-ended
				if took := r.at.Sub(changed); took > within {
					t.Errorf("it went on for %s and %d operations, want at most %s", took,
						len(w.b.lab.Effects())-n, within)
				} else {
					t.Logf("the call ended %s after the change", took.Round(time.Millisecond))
				}
				if r.err == nil && (!r.answer.IsError || !strings.Contains(whole(r), c.why)) {
					t.Errorf("want an end by %s: %s", c.why, whole(r))
				}
				answer, err := b.CallTool(t.Context(), &mcp.CallToolParams{Name: "steps_run",
					Arguments: map[string]any{"n": 1}})
				if err == nil && !answer.IsError {
					t.Errorf("another call: %+v", answer)
				}
				if c.give == nil {
					return
				}
				w.b.runs(t, c.give...)
				if how, _, text := outcome(t, b, "steps_run",
					map[string]any{"n": 1}); how != "succeeded" {
					t.Errorf("thawed: %s %s", how, text)
				}
			})
		}
	}
}

// whole is all text of an answer.
func whole(r running) (text string) {
	if r.answer == nil {
		return ""
	}
	for _, c := range r.answer.Content {
		if part, is := c.(*mcp.TextContent); is {
			text += part.Text
		}
	}
	return text
}

// The doctor reports the state of the database, and changes nothing in it.
func TestTheDoctorAsksTheSharedDatabase(t *testing.T) {
	w := newTwoHosts(t, nil)
	w.a.runs(t, "freeze", "--node", "pve2", "--reason", "a test")
	r, _ := w.b.examined(t)
	if !r.has("store", "ok", "PostgreSQL 1", "") || !r.has("store", "ok", "schema version 3", "") ||
		!r.has("freeze", "warn", "node \"pve2\" is frozen", "caponier thaw --node pve2") {
		t.Errorf("findings %+v", r.Findings)
	}
	w.server.SQL(w.database, "INSERT INTO caponier.schema VALUES (99)")
	if r, code := w.b.examined(t); code != 1 || !r.has("store", "fail",
		"it has the schema version 99, this program reads 3: upgrade this host", "[store] url") {
		t.Errorf("newer tables: %+v", r.Findings)
	}
	w.server.Kill()
	if r, code := w.b.examined(t); code != 1 || !r.has("store", "fail", "cannot be reached",
		"[store] url") {
		t.Errorf("without the server: %+v", r.Findings)
	}
	if r, _ := w.b.examined(t, "--offline"); r.has("store", "fail", "", "") {
		t.Errorf("offline it asked the server: %+v", r.Findings)
	}
}

// While the database is down, every call is refused with the reason, and /ready reports it. When
// the database is back, calls work again without a restart.
func TestWithoutItsDatabaseAHostRefuses(t *testing.T) {
	var p *pgtest.Proxy
	w := newTwoHosts(t, func(s *pgtest.Server, database string) (a, b string) {
		p = pgtest.NewProxy(t, s.Port)
		return s.URL(database), strings.Replace(s.URL(database), s.Port, p.Port, 1)
	})
	b := connect(t, w.b.serveHTTP(t), w.token)
	stdio := w.b.stdio(t)
	ready := func() string {
		res, err := http.Get("http://" + w.page + "/ready")
		must(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		must(t, err)
		return fmt.Sprint(res.StatusCode, " ", string(body))
	}
	works := func() {
		t.Helper()
		for _, s := range []*mcp.ClientSession{b, stdio} {
			waitFor(t, "a call", func() bool {
				answer, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "steps_run",
					Arguments: map[string]any{"n": 1}})
				return err == nil && !answer.IsError
			})
		}
		waitFor(t, "readiness", func() bool { return strings.HasPrefix(ready(), "200") })
	}
	works()
	for name, fault := range map[string]func(on bool){"it is cut off": p.Cut, "it hangs": p.Hang,
		"it is killed": func(on bool) {
			if on {
				w.server.Kill()
			} else {
				w.server.Run()
			}
		}} {
		t.Run(name, func(t *testing.T) {
			fault(true)
			before := len(w.a.lab.Effects())
			for range 3 {
				began := time.Now()
				how, _, text := outcome(t, stdio, "steps_run", map[string]any{"n": 1})
				if how != "refused" || !strings.Contains(text, "ledger.unavailable") ||
					!strings.Contains(text, "the store at 127.0.0.1:"+p.Port+"/"+w.database+
						" cannot be reached") || !strings.Contains(text, "[store] url") {
					t.Errorf("%s: %s", how, text)
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("it took %s", took)
				}
				answer, err := b.CallTool(t.Context(), &mcp.CallToolParams{Name: "steps_run",
					Arguments: map[string]any{"n": 1}})
				// at first the token may be remembered
				if err == nil && !strings.Contains(whole(running{answer: answer}), w.database+
					" cannot be reached") || err != nil && !strings.Contains(err.Error(),
					"Service Unavailable") {
					t.Errorf("with a token: %+v, %v", answer, err)
				}
			}
			waitFor(t, "/ready", func() bool {
				at := ready()
				return strings.HasPrefix(at, "503") && strings.Contains(at, "store")
			})
			if n := len(w.a.lab.Effects()); n != before {
				t.Errorf("%d things reached the node", n-before)
			}
			fault(false)
			began := time.Now()
			works()
			t.Logf("calls go on %s after it is back", time.Since(began).Round(time.Millisecond))
		})
	}
}
