package test

import (
	"bufio"
	"bytes"
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

// agent connects with a token of its own.
func (s *site) agent(t *testing.T, url, name string) *mcp.ClientSession {
	t.Helper()
	token, err := s.command("token", "new", name).Output()
	must(t, err)
	session, err := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, nil).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: url + "/mcp", HTTPClient: &http.Client{Transport: bearer(strings.TrimSpace(string(token)))}}, nil)
	must(t, err)
	t.Cleanup(func() { session.Close() })
	return session
}

// outcome calls a tool and gives how that ended, and all text of the answer.
func outcome(t *testing.T, session *mcp.ClientSession, tool string, args map[string]any) (how, approval, text string) {
	t.Helper()
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	must(t, err)
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

// serveHTTP starts the real binary and gives its URL.
func (s *site) serveHTTP(t *testing.T) string {
	t.Helper()
	cmd := s.command("serve", "--http", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "approvals/login") {
			t.Error("the host's log has a link that signs in")
		}
		if m := regexp.MustCompile(`url=(http://\S+)/mcp`).FindStringSubmatch(lines.Text()); m != nil {
			go io.Copy(io.Discard, stderr)
			return m[1]
		}
	}
	t.Fatal("it does not serve")
	return ""
}

// The story of docs/approvals.md: an agent asks to delete a guest, a person looks and says yes in a real browser, it happens once.
func TestAPersonApprovesADeletionInABrowser(t *testing.T) {
	web := newChromium(t)
	s := newSite(t, filepath.Join(plugins, "guests.wasm"))
	data := filepath.Join(s.dir, "site", "data.yaml")
	text, err := os.ReadFile(data)
	must(t, err)
	must(t, os.WriteFile(data, regexp.MustCompile(`(?m)^  demo: .*`).ReplaceAll(text, []byte("  agent-a: {auth: [token], roles: [operator]}\n  agent-b: {auth: [token], roles: [operator]}")), 0o644))
	page := freeAddress(t)
	f, err := os.OpenFile(s.config, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	fmt.Fprintf(f, "\n[identity]\ntokens = %q\n[[identity.principals]]\nid = \"agent-a\"\n[[identity.principals]]\nid = \"agent-b\"\n[approval]\nwait = \"300ms\"\napprovers = [\"ann\"]\nlisten = %q\n", filepath.Join(s.dir, "tokens.json"), page)
	must(t, f.Close())
	at := s.serveHTTP(t)
	a, b := s.agent(t, at, "agent-a"), s.agent(t, at, "agent-b")
	delete105 := map[string]any{"guest_id": 105}
	there := func() bool {
		how, _, text := outcome(t, b, "list_guests", map[string]any{})
		if how != "succeeded" || !strings.Contains(text, "scratch") && !strings.Contains(text, "web01") {
			t.Fatalf("list_guests: %s %s", how, text)
		}
		return regexp.MustCompile(`(?m)^105\b`).MatchString(text)
	}

	if how, _, text := outcome(t, a, "stop_guest", map[string]any{"guest_id": 105}); how != "succeeded" {
		t.Fatalf("stop_guest: %s %s", how, text)
	}
	how, id, said := outcome(t, a, "delete_guest", delete105)
	if how != "waiting" || !strings.Contains(said, "http://"+page+"/approvals/"+id) || !strings.Contains(said, "the same call") {
		t.Fatalf("delete_guest: %s %q", how, said)
	}

	// What the agent was told lets nobody in.
	request := "http://" + page + "/approvals/" + id
	web.size(900, 700, false)
	web.open(request, "Sign in first")
	link, err := s.command("approvals", "link", "--as", "ann").Output()
	must(t, err)
	web.open(strings.TrimSpace(string(link)), "signs you in as ann")
	web.click("button.yes")
	web.until("location.pathname + document.body.innerText", "delete_guest")
	picture(t, web, "approvals-list.png")

	// The person sees what would run, on a phone too.
	web.open(request, "Approve once: delete_guest, guest 105, node pve1")
	for _, want := range []string{"agent-a", "105", "pve1", "destroy VMID", "guest_id: 105", "red · destructive", "needs a confirmation", "An agent wrote them"} {
		web.until("document.body.innerText", want)
	}
	web.until("getComputedStyle(document.querySelector('.quoted')).borderTopStyle", "dashed") // our style sheet passes our policy
	web.until("(() => { const e = document.createElement('script'); e.textContent = 'window.ran = 1'; document.body.append(e); return window.ran })()", "undefined")
	picture(t, web, "approvals-request.png")
	web.size(390, 760, true)
	web.until("document.documentElement.scrollWidth <= 390", "true")
	picture(t, web, "approvals-phone.png")
	web.size(900, 700, false)

	// Another page in the same browser can neither frame it nor send its form.
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/frame" {
			fmt.Fprintf(w, `<h1>Win a prize</h1><iframe src=%q width=800 height=600></iframe>`, request)
			return
		}
		fmt.Fprintf(w, `<h1>Win a prize</h1><form method=post action=%q><input name=verdict value=approve><button>Claim</button></form>`, request)
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
	if how, other, _ := outcome(t, b, "delete_guest", delete105); how != "waiting" || other == id || !there() {
		t.Fatalf("agent-b: %s %s, guest there: %v", how, other, there())
	}
	if how, _, text := outcome(t, a, "delete_guest", delete105); how != "succeeded" || there() {
		t.Fatalf("after the yes: %s %s, guest there: %v", how, text, there())
	}
	web.open(request, "used by ann (web)")
	if how, again, _ := outcome(t, a, "delete_guest", delete105); how != "waiting" || again == id {
		t.Errorf("the same call again: %s %s", how, again)
	}

	s.journaled(t, `"type":"refused".*"principal":"agent-a".*"tool":"delete_guest".*"failed":\["confirmation"\]`)
	s.journaled(t, `"type":"intent".*"kind":"call".*"principal":"agent-a".*"tool":"delete_guest".*"confirmation":{"state":"approved","by":"ann"}`)
	s.journaled(t, `"type":"outcome".*"tool":"delete_guest".*"op":"ssh_exec"|"type":"outcome".*"op":"ssh_exec".*"tool":"delete_guest"`)
	out, err := s.command("audit", "verify").CombinedOutput()
	if err != nil {
		t.Errorf("audit verify: %v\n%s", err, out)
	}
}

// picture writes a screenshot for the docs when asked to, and always takes one: a page that cannot be drawn is broken.
func picture(t *testing.T, web *chromium, name string) {
	t.Helper()
	png := web.picture()
	if !bytes.HasPrefix(png, []byte("\x89PNG")) || len(png) < 5_000 || len(png) > 150_000 {
		t.Errorf("%s has %d bytes", name, len(png))
	}
	if *pictures {
		must(t, os.MkdirAll("../docs/pictures", 0o755))
		must(t, os.WriteFile(filepath.Join("../docs/pictures", name), png, 0o644))
	}
}
