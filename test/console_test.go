package test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/plaintext"
)

// A person looks at what an agent did, follows filters and links with and without a script, and
// freezes a tool. What the agent wrote stays text in a real browser.
func TestAPersonSeesWhatHappensInABrowser(t *testing.T) {
	web := newChromium(t)
	s := newSite(t, filepath.Join(plugins, "guests.wasm"))
	data := filepath.Join(s.dir, "site", "data.yaml")
	text, err := os.ReadFile(data)
	must(t, err)
	must(t, os.WriteFile(data, regexp.MustCompile(`(?m)^  demo: .*`).ReplaceAll(text,
		[]byte("  agent-a: {auth: [token], roles: [operator]}")), 0o644))
	page := freeAddress(t)
	f, err := os.OpenFile(s.config, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	doc, err := os.ReadFile("../docs/console.md") // its settings
	must(t, err)
	_, settings, _ := strings.Cut(string(doc), "```toml\n")
	settings, _, ok := strings.Cut(settings, "```")
	if settings = strings.Replace(settings, "127.0.0.1:8443", page, 1); !ok ||
		!strings.Contains(settings, page) {
		t.Fatalf("the page has no settings: %s", settings)
	}
	fmt.Fprintf(f, "\n[identity]\ntokens = %q\n[[identity.principals]]\nid = \"agent-a\"\n%s",
		filepath.Join(s.dir, "tokens.json"), settings)
	must(t, f.Close())
	at := s.serveHTTP(t)
	agent := s.agent(t, at, "agent-a")
	const evil = `<img src=x onerror="window.ran=1">` + "\u202ereversed p\u0430ss"
	for tool, args := range map[string]map[string]any{"get_guest_status": {"guest_id": 105},
		"stop_guest": {"guest_id": 105}} {
		if how, _, text := outcome(t, agent, tool, args); how != "succeeded" {
			t.Fatalf("%s: %s %s", tool, how, text)
		}
	}
	if how, _, text := outcome(t, agent, "list_guests", map[string]any{"node": evil}); how ==
		"succeeded" {
		t.Fatalf("a node of that name: %s", text)
	}

	base := "http://" + page + "/approvals/console"
	web.size(1100, 760, false)
	web.open(base, "Sign in first")
	enter := func(who string) {
		t.Helper()
		link, err := s.command("approvals", "link", "--as", who).Output()
		must(t, err)
		web.open(strings.TrimSpace(string(link)), "signs you in as "+who)
		web.click("button.yes")
		web.until("location.pathname", "/approvals")
		web.until("document.body.innerText", "Nothing waits")
	}
	enter("eve") // who may approve, and not look
	web.open(base, "and not see the console")
	web.open(base+"/freeze", "and not see the console")
	enter("bob") // who may look, and not freeze
	web.open(base+"/freeze", "You may not freeze here")
	enter("ann")
	web.click("header a[href='/approvals/console']")
	web.until("location.pathname", "/approvals/console")
	for range 20 { // the index follows
		web.open(base, "newest calls first")
		if strings.Contains(web.eval("document.body.innerText"), "stop_guest") {
			break
		}
	}
	web.until("document.body.innerText", "stop_guest")
	picture(t, web, "console-calls.png")
	web.accessible("calls")

	// A form and links are all that it needs.
	web.eval("document.querySelector('input[name=tool]').value = 'stop_*'")
	web.click(".filters button")
	web.until("location.search", "tool=stop_")
	web.until("document.body.innerText", "stop_guest")
	web.until("document.querySelectorAll('tbody tr').length", "1")
	web.click("tbody a")
	web.until("document.body.innerText", "Decisions and operations")
	for _, want := range []string{"agent-a", "pct shutdown", "allowed, succeeded", "ssh_exec"} {
		web.until("document.body.innerText", want)
	}
	picture(t, web, "console-call.png")
	web.accessible("one call")
	web.click("details summary")
	web.until("document.querySelector('details').open", "true")
	web.click("ol.tree a")
	web.until("document.body.innerText", "allowed")

	for path, want := range map[string]string{"nodes": "pve1", "plugins": "sha256:",
		"policy": "in force in this process", "budgets": "Spent or reserved"} {
		web.open(base+"/panel/"+path, want)
		web.accessible(path)
	}
	web.open(base+"/panel/plugins", "guests")
	picture(t, web, "console-plugins.png")

	// What others wrote is text, also where the address has it.
	web.open(base+"?who="+url.QueryEscape(evil)+"&tool="+url.QueryEscape(evil), "No call fits")
	web.until("document.querySelector('input[name=who]').value", plaintext.Show(evil))
	web.until("window.ran", "undefined")
	web.until("document.querySelectorAll('img').length", "0")

	// Headings, labels and tables are what a screen reader needs.
	web.open(base, "newest calls first")
	web.until("[...document.querySelectorAll('input[type=text], select')].every(e => "+
		"e.labels.length == 1) && document.querySelectorAll('h1').length == 1 && "+
		"document.documentElement.lang == 'en' && "+
		"[...document.querySelectorAll('th')].every(e => e.scope) && "+
		"document.querySelectorAll('table caption').length == 1", "true")
	web.size(390, 760, true)
	web.until("document.documentElement.scrollWidth <= 390", "true")
	web.size(1100, 760, false)

	web.open(base+"/freeze", "Freeze more")
	web.accessible("freeze")
	web.open(base+"/freeze", "Freeze more") // the Tab key has left the page
	web.eval("document.querySelector('select[name=scope]').value = 'tool'")
	web.eval("document.querySelector('input[name=name]').value = 'stop_guest'")
	web.eval("document.querySelector('input[name=reason]').value = 'a look'")
	web.click("button.no")
	web.until("document.body.innerText", "ann on the console")
	if how, _, text := outcome(t, agent, "stop_guest", map[string]any{"guest_id": 105}); how !=
		"refused" || !strings.Contains(text, "a look") {
		t.Errorf("a frozen tool: %s %s", how, text)
	}
	out, err := s.command("freeze", "list").Output()
	must(t, err)
	if !strings.Contains(string(out), `tool "stop_guest"`) ||
		!strings.Contains(string(out), "ann on the console") {
		t.Errorf("the list of the command line: %s", out)
	}
	web.open(base+"/freeze", "Freeze more")
	web.eval("document.querySelector('select[name=scope]').value = 'node'")
	web.eval("document.querySelector('input[name=name]').value = 'nowhere'")
	web.click("button.no")
	web.until("document.body.innerText", "no node")
}
