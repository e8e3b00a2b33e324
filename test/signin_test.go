package test

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caponier-mcp/caponier/host/signin/signintest"
)

// provider is an OpenID provider with a page of its own, where the person of sub goes on.
func provider(t *testing.T, sub *atomic.Value) *signintest.Provider {
	idp := signintest.New(t)
	idp.Serve = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/auth" {
			return false
		}
		if r.Method == http.MethodGet {
			fmt.Fprintf(w, `<h1>Who are you?</h1><form method="post" action="%s"><button>I am %s`+
				`</button></form>`, html.EscapeString(r.URL.String()), sub.Load())
			return true
		}
		back := idp.Agree(t, r.URL.String(), sub.Load().(string))
		http.Redirect(w, r, r.URL.Query().Get("redirect_uri")+"?"+back.Encode(),
			http.StatusSeeOther)
		return true
	}
	return idp
}

// A person follows the link of a message, signs in at the provider in a real browser, and answers
// that request. Signing out ends the session on the host. A person whom the configuration does not
// list cannot sign in.
func TestAnApproverSignsInAtAProviderInABrowser(t *testing.T) {
	web := newChromium(t)
	var sub atomic.Value
	sub.Store("auth0|ann")
	idp := provider(t, &sub)
	s := newSite(t, filepath.Join(plugins, "guests.wasm"))
	s.rewrite(t, "\nprincipals:\n",
		"\nprincipals:\n  agent-a: {auth: [token], roles: [operator]}\n")
	page := freeAddress(t)
	f, err := os.OpenFile(s.config, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	fmt.Fprintf(f, "\n[identity]\ntokens = %q\n[[identity.principals]]\nid = \"agent-a\"\n"+
		"[approval]\nwait = \"300ms\"\napprovers = [\"ann\"]\nlisten = %q\n[approval.oidc]\n"+
		"issuer = %q\nclient_id = %q\nclient_secret = %q\n[[approval.oidc.people]]\n"+
		"claim = \"auth0|ann\"\nname = \"ann\"\n", filepath.Join(s.dir, "tokens.json"), page,
		idp.Issuer, signintest.ClientID, signintest.ClientSecret)
	must(t, f.Close())
	a := s.agent(t, s.serveHTTP(t), "agent-a")
	guest := map[string]any{"guest_id": 105}
	if how, _, text := outcome(t, a, "stop_guest", guest); how != "succeeded" {
		t.Fatalf("stop_guest: %s %s", how, text)
	}
	how, id, said := outcome(t, a, "delete_guest", guest)
	if how != "waiting" {
		t.Fatalf("delete_guest: %s %q", how, said)
	}

	request, enter := "http://"+page+"/approvals/"+id, "form[action='/approvals/oidc'] button"
	web.open(request, "Sign in first")
	web.accessible("signed out, with a provider")
	web.way(page)
	sub.Store("auth0|eve")
	web.open(request, "Sign in first")
	web.click(enter)
	web.until("document.body.innerText", "I am auth0|eve")
	web.click("button")
	web.until("document.body.innerText", "you may not sign in here")
	web.accessible("not let in")
	web.open(request, "Sign in first")

	sub.Store("auth0|ann")
	web.click(enter)
	web.until("document.body.innerText", "I am auth0|ann")
	web.click("button")
	web.until("location.pathname + document.body.innerText", "/approvals/"+id)
	web.until("document.body.innerText", "Approve once: delete_guest, guest 105")
	web.click("button.yes")
	web.until("document.body.innerText", "approved by ann (web)")
	sessions := func() string {
		out, err := s.command("approvals", "sessions", "list").Output()
		must(t, err)
		return string(out)
	}
	if all := sessions(); strings.Count(all, "ann") != 1 {
		t.Errorf("sessions: %s", all)
	}
	web.click("form[action='/approvals/logout'] button")
	web.until("document.body.innerText", "igned out")
	if all := sessions(); strings.Contains(all, "ann") {
		t.Errorf("a session outlived signing out: %s", all)
	}
	web.open(request, "Sign in first")
	if how, _, text := outcome(t, a, "delete_guest", guest); how != "succeeded" {
		t.Fatalf("after the yes: %s %s", how, text)
	}
}

// way checks the page between the host and the provider, which redirects at once, with axe-core.
func (c *chromium) way(page string) {
	c.t.Helper()
	res, err := http.Post("http://"+page+"/approvals/oidc", "application/x-www-form-urlencoded", nil)
	must(c.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(c.t, err)
	if res.StatusCode != http.StatusOK || !strings.Contains(string(body), "Go on to") {
		c.t.Fatalf("%d %s", res.StatusCode, body)
	}
	var tree struct {
		FrameTree struct{ Frame struct{ ID string } }
	}
	c.do("Page.getFrameTree", nil, &tree)
	c.do("Page.setDocumentContent", map[string]any{"frameId": tree.FrameTree.Frame.ID,
		"html": string(body)}, nil)
	c.until("document.body.innerText", "Go on to")
	c.accessible("the way to the provider")
}
