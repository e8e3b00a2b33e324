package test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var pictures = flag.Bool("pictures", false, "write docs/pictures/*.png")

// bearer is an agent's HTTP client.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// agent connects with its own token.
func (s *site) agent(t *testing.T, url, name string) *mcp.ClientSession {
	t.Helper()
	token, err := s.command("token", "new", name).Output()
	must(t, err)
	session, err := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, nil).
		Connect(t.Context(),
			&mcp.StreamableClientTransport{
				Endpoint:   url + "/mcp",
				HTTPClient: &http.Client{Transport: bearer(strings.TrimSpace(string(token)))},
			}, nil)
	must(t, err)
	t.Cleanup(func() { session.Close() })
	return session
}

// outcome calls a tool and returns how the call ended, and all text of the answer.
func outcome(
	t *testing.T,
	session *mcp.ClientSession,
	tool string,
	args map[string]any,
) (how, approval, text string) {
	t.Helper()
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	must(t, err)
	keepsItsPromise(t, tool, res)
	for _, c := range res.Content {
		if part, ok := c.(*mcp.TextContent); ok {
			text += part.Text + "\n"
		}
	}
	sum, _ := res.Meta["io.caponier/call"].(map[string]any)
	how, _ = sum["outcome"].(string)
	approval, _ = sum["approval_id"].(string)
	if (how == "waiting") != (approval != "") || res.IsError == (how == "succeeded") {
		t.Errorf("outcome %q, approval %q, isError %v", how, approval, res.IsError)
	}
	return how, approval, text
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// serveHTTP starts the real binary and returns its URL.
func (s *site) serveHTTP(t *testing.T) string {
	t.Helper()
	cmd := s.command("serve", "--http", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	s.host = cmd.Process
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	lines, said := bufio.NewScanner(stderr), ""
	for lines.Scan() {
		said += lines.Text() + "\n"
		if strings.Contains(lines.Text(), "approvals/login") {
			t.Error("the host's log has a link that signs in")
		}
		if m := regexp.MustCompile(`url=(http://\S+)/mcp`).FindStringSubmatch(lines.Text()); m != nil {
			go io.Copy(io.Discard, stderr)
			return m[1]
		}
	}
	t.Fatalf("it does not serve:\n%s", said)
	return ""
}

// An agent asks to delete a guest, as in docs/approvals.md. A person looks at the guest and
// approves the call in a real browser. The guest is deleted once.
func TestAPersonApprovesADeletionInABrowser(t *testing.T) {
	web := newChromium(t)
	s := newSite(t, filepath.Join(plugins, "guests.wasm"))
	data := filepath.Join(s.dir, "site", "data.yaml")
	text, err := os.ReadFile(data)
	must(t, err)
	must(
		t,
		os.WriteFile(
			data,
			regexp.MustCompile(`(?m)^  demo: .*`).
				ReplaceAll(text, []byte("  agent-a: {auth: [token], roles: [operator]}\n  "+
					"agent-b: {auth: [token], roles: [operator]}\n  ann: {auth: [config], roles: "+
					"[viewer]}")),
			0o644,
		),
	)
	page, numbers := freeAddress(t), freeAddress(t)
	f, err := os.OpenFile(s.config, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	fmt.Fprintf(
		f,
		"\n[identity]\ntokens = %q\n[[identity.principals]]\nid = \"agent-a\"\n"+
			"[[identity.principals]]\nid = \"agent-b\"\n[approval]\nwait = \"300ms\"\napprovers "+
			"= [\"ann\"]\nlisten = %q\nlooks = [\"get_guest_status\"]\n[front]\nmetrics = %q\n",
		filepath.Join(s.dir, "tokens.json"),
		page,
		numbers,
	)
	must(t, f.Close())
	at := s.serveHTTP(t)
	a, b := s.agent(t, at, "agent-a"), s.agent(t, at, "agent-b")
	delete105 := map[string]any{"guest_id": 105}
	there := func() bool {
		how, _, text := outcome(t, b, "list_guests", map[string]any{})
		if how != "succeeded" ||
			!strings.Contains(text, "scratch") && !strings.Contains(text, "web01") {
			t.Fatalf("list_guests: %s %s", how, text)
		}
		return regexp.MustCompile(`(?m)^105\b`).MatchString(text)
	}

	if how, _, text := outcome(t, a, "stop_guest",
		map[string]any{"guest_id": 105}); how != "succeeded" {
		t.Fatalf("stop_guest: %s %s", how, text)
	}
	how, id, said := outcome(t, a, "delete_guest", delete105)
	if how != "waiting" || !strings.Contains(said, "http://"+page+"/approvals/"+id) ||
		!strings.Contains(said, "the same call") {
		t.Fatalf("delete_guest: %s %q", how, said)
	}

	// What the agent was told lets nobody in.
	request := "http://" + page + "/approvals/" + id
	web.size(900, 700, false)
	web.open(request, "Sign in first")
	web.accessible("signed out")
	link, err := s.command("approvals", "link", "--as", "ann").Output()
	must(t, err)
	web.open(strings.TrimSpace(string(link)), "signs you in as ann")
	web.accessible("the sign-in")
	web.click("button.yes")
	web.until("location.pathname + document.body.innerText", "delete_guest")
	picture(t, web, "approvals-list.png")
	web.accessible("the list")
	web.installable()
	web.click("a[href='/approvals?live=1']")
	web.until("document.querySelectorAll('meta[http-equiv=refresh]').length", "1")

	// The person sees what would run, on a phone too.
	web.open(request, "Approve once: delete_guest, guest 105, node pve1")
	for _, want := range []string{"agent-a", "105", "pve1", "destroy VMID", "guest_id: 105",
		"red · destructive", "only after a person approved", "An agent wrote them"} {
		web.until("document.body.innerText", want)
	}
	// our style sheet passes our policy
	web.until("getComputedStyle(document.querySelector('.quoted')).borderTopStyle", "dashed")
	web.until(
		"(() => { const e = document.createElement('script'); e.textContent = 'window.ran = 1'; "+
			"document.body.append(e); return window.ran })()",
		"undefined",
	)
	// How the guest is now is read only when the person asks, and as that person.
	looked := `"type":"intent".*"kind":"operation".*"principal":"ann".*"tool":"get_guest_status"`
	if s.has(t, looked) {
		t.Error("the page read something before anybody asked it to")
	}
	web.click("button.look")
	web.until("document.body.innerText", "get_guest_status, read as ann just now")
	web.until("document.body.innerText", "stopped")
	s.journaled(t, looked)
	picture(t, web, "approvals-request.png")
	web.accessible("a request")
	web.open(request, "Approve once: delete_guest, guest 105, node pve1")
	web.size(390, 760, true)
	web.until("document.documentElement.scrollWidth <= 390", "true")
	picture(t, web, "approvals-phone.png")
	web.accessible("a request on a phone")
	web.size(900, 700, false)

	// Another page in the same browser can neither frame it nor send its form.
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/frame" {
			fmt.Fprintf(
				w,
				`<h1>Win a prize</h1><iframe src=%q width=800 height=600></iframe>`,
				request,
			)
			return
		}
		fmt.Fprintf(
			w,
			`<h1>Win a prize</h1><form method=post action=%q><input name=verdict `+
				`value=approve><button>Claim</button></form>`,
			request,
		)
	}))
	defer evil.Close()
	prize := strings.Replace(evil.URL, "127.0.0.1", "localhost", 1)
	web.open(prize+"/frame", "complete Win a prize")
	if said := web.logged("frame-ancestors"); !strings.Contains(said, "has been blocked") {
		t.Errorf("the browser does not say that it blocked the frame: %s", said)
	}
	web.open(prize+"/form", "Win a prize")
	web.click("button")
	web.until("document.body.innerText", "other sites are not served")

	if how, _, _ := outcome(t, a, "delete_guest", delete105); how != "waiting" || !there() {
		t.Fatalf("before the yes: %s, guest there: %v", how, there())
	}
	web.open(request, "Approve once: delete_guest, guest 105, node pve1")
	web.click("button.yes")
	web.until("document.body.innerText", "approved by ann (web)")

	// Another agent does not ride on it.
	if how, other, _ := outcome(t, b, "delete_guest", delete105); how != "waiting" || other == id ||
		!there() {
		t.Fatalf("agent-b: %s %s, guest there: %v", how, other, there())
	}
	if how, _, text := outcome(t, a, "delete_guest", delete105); how != "succeeded" || there() {
		t.Fatalf("after the yes: %s %s, guest there: %v", how, text, there())
	}
	web.open(request, "used by ann (web)")
	// its dry run finds no guest, so that nobody is asked
	if how, again, _ := outcome(t, a, "delete_guest", delete105); how != "failed" {
		t.Errorf("the same call again: %s %s", how, again)
	}

	s.journaled(
		t,
		`"type":"refused".*"principal":"agent-a".*"tool":"delete_guest".`+
			`*"failed":\["confirmation"\]`,
	)
	s.journaled(
		t,
		`"type":"intent".*"kind":"call".*"principal":"agent-a".*"tool":"delete_guest".`+
			`*"confirmation":{"answers":\[.*\],"by":"ann","channel":"web","state":"approved"}`,
	)
	s.journaled(
		t,
		`"type":"intent".*"kind":"approval","op":"approve".*"principal":"agent-a".`+
			`*"tool":"delete_guest".*"verdict":{"request":"`+id+
			`","approve":true,"by":"ann","channel":"web"}`,
	)
	s.journaled(
		t,
		`"type":"refused".*"principal":"agent-b".*"tool":"delete_guest".*"outcome":"waiting"`,
	)
	s.journaled(
		t,
		`"type":"outcome".*"tool":"delete_guest".*"op":"ssh_exec"|"type":"outcome".`+
			`*"op":"ssh_exec".*"tool":"delete_guest"`,
	)
	out, err := s.command("audit", "verify").CombinedOutput()
	if err != nil {
		t.Errorf("audit verify: %v\n%s", err, out)
	}
	out, err = s.command("audit", "tail").CombinedOutput()
	must(t, err)
	story := `(?s)agent-a  delete_guest  red .*└─ … WAITS for a person.*  ann  approves ` +
		`delete_guest of agent-a  via web  request ` + id +
		`.*agent-b  delete_guest  red .*└─ … WAITS for a person.*agent-a  delete_guest  red .* · ` +
		`approved by ann.*ssh_exec  on pve1  red: \$ pct destroy 105 .*└─ ✓ succeeded`
	if !regexp.MustCompile(story).Match(out) {
		t.Errorf("audit tail does not tell the story:\n%s", out)
	}
	if *pictures {
		t.Logf("%s", out)
	}

	// The metrics show the decisions, and neither arguments nor callers.
	for path, want := range map[string][]string{
		"/ready": {`{"ready":true}`},
		"/health": {`"status":"healthy"`, `{"name":"pve1","connected":true}`,
			`"policy_revision":"`, `"lock_checksum":"sha256:`},
		"/metrics": {"\ncaponier_fail_open_total 0\n",
			`caponier_decisions_total{kind="call",result="waiting",tier="red"} `,
			`caponier_decisions_total{kind="approval",result="allowed",tier="red"} 1`,
			`caponier_pool_connections{node="pve1"} `, "caponier_approvals_waiting 1"},
	} {
		res, err := http.Get("http://" + numbers + path)
		must(t, err)
		body, err := io.ReadAll(res.Body)
		must(t, errors.Join(err, res.Body.Close()))
		for _, w := range want {
			if res.StatusCode != 200 || !strings.Contains(string(body), w) {
				t.Errorf("%s answers %d without %s:\n%s", path, res.StatusCode, w, body)
			}
		}
		if strings.Contains(string(body), "guest_id") || strings.Contains(string(body), "agent-a") {
			t.Errorf("%s names an argument or who asked", path)
		}
	}
}

// If the site allows it, the user of the calling client may approve, and nobody else is asked.
func TestTheClientsOwnUserApprovesWhereTheSiteSaysSo(t *testing.T) {
	s := newSite(t, filepath.Join(plugins, "guests.wasm"))
	data := filepath.Join(s.dir, "site", "data.yaml")
	text, err := os.ReadFile(data)
	must(t, err)
	channels := func(list string) {
		must(
			t,
			os.WriteFile(
				data,
				regexp.MustCompile(`(?m)^  channels: .*`).
					ReplaceAll(text, []byte("  channels: "+list)),
				0o644,
			),
		)
	}
	var asked []string
	answer := &mcp.ElicitResult{Action: "accept", Content: map[string]any{"approve": true}}
	connect := func(o *mcp.ClientOptions) *mcp.ClientSession {
		cmd := s.command("serve")
		cmd.Env = append(cmd.Env, "CAPONIER_APPROVAL_WAIT=100ms")
		cmd.Stderr = t.Output()
		session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o).
			Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
		must(t, err)
		t.Cleanup(func() { session.Close() })
		return session
	}
	withUser := &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult,
			error) {
			asked = append(asked, r.Params.Message)
			return answer, nil
		},
	}
	// 104 is stopped, and so can be deleted; 105 is running, and stopped before
	stop, stopped := map[string]any{"guest_id": 105}, map[string]any{"guest_id": 104}
	if how, _, said := outcome(t, connect(withUser), "delete_guest", stopped); how != "waiting" ||
		len(asked) != 0 {
		t.Errorf("the site takes no client's word: %s %s, asked %q", how, said, asked)
	}
	channels("[client]")
	if how, _, said := outcome(t, connect(nil), "delete_guest", stopped); how != "refused" ||
		!strings.Contains(said, "approval.channels") {
		t.Errorf("a client that cannot ask: %s %s", how, said)
	}
	user := connect(withUser)
	answer = &mcp.ElicitResult{Action: "decline"}
	if how, _, said := outcome(t, user, "delete_guest", stopped); how != "refused" ||
		!strings.Contains(said, "approval.denied") ||
		len(asked) != 1 {
		t.Errorf("the user says no: %s %s", how, said)
	}
	answer = &mcp.ElicitResult{Action: "accept", Content: map[string]any{"approve": true}}
	if how, _, said := outcome(t, user, "stop_guest", stop); how != "succeeded" {
		t.Fatalf("stop_guest: %s %s", how, said)
	}
	asked = nil
	if how, _, said := outcome(t, user, "delete_guest", stop); how != "succeeded" ||
		len(asked) != 1 ||
		!strings.Contains(asked[0], "may demo run delete_guest") ||
		!strings.Contains(asked[0], "guest 105, node pve1") {
		t.Errorf("the user says yes: %s %s, asked %q", how, said, asked)
	}
	s.journaled(t, `"kind":"approval","op":"deny".*"by":"client of demo","channel":"client"`)
	s.journaled(
		t,
		`"kind":"call".*"tool":"delete_guest".*"confirmation":{"answers":\[.*\],"by":"client of `+
			`demo","channel":"client","state":"approved"}`,
	)
}

// picture writes a screenshot for the docs when asked to, and always takes one: a page that cannot
// be drawn is broken.
func picture(t *testing.T, web *chromium, name string) {
	t.Helper()
	png := web.picture()
	if !bytes.HasPrefix(png, []byte("\x89PNG")) || len(png) < 5_000 || len(png) > 300_000 {
		t.Errorf("%s has %d bytes", name, len(png))
	}
	if *pictures {
		must(t, os.MkdirAll("../docs/pictures", 0o755))
		must(t, os.WriteFile(filepath.Join("../docs/pictures", name), png, 0o644))
	}
}
