package test

import (
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Two persons sign in on the page of the real host, each with a ticket. Nothing is done after the
// first yes, and the call once after the second.
func TestTwoPersonsApproveOnTheRealPage(t *testing.T) {
	s := newSite(t)
	data := filepath.Join(s.dir, "site", "data.yaml")
	text, err := os.ReadFile(data)
	must(t, err)
	const needs = "\napproval:\n  needs: {\"*\": {approvers: 2, ticket: \"OPS-[0-9]+\", " +
		"reason: true}}\n"
	must(t, os.WriteFile(data, []byte(strings.Replace(string(text), "\napproval:\n", needs, 1)),
		0o644))
	page := freeAddress(t)
	s.add(t, fmt.Sprintf("\n[identity]\nhttp = \"demo\"\n"+
		"[[identity.principals]]\nid = \"demo\"\n[approval]\nwait = \"300ms\"\n"+
		"approvers = [\"ann\", \"bob\"]\nlisten = %q\n", page))
	s.serveHTTP(t)
	session := s.stdio(t)
	stop := map[string]any{"vmid": 110, "node": "pve2"}
	how, id, said := outcome(t, session, "proxmox_stop_container", stop)
	if how != "waiting" {
		t.Fatalf("%s: %s", how, said)
	}
	for i, who := range []string{"ann", "bob"} {
		if n := s.stops(); n > 0 {
			t.Fatalf("after %d of 2 it was stopped", i)
		}
		if again, same, _ := outcome(t, session, "proxmox_stop_container", stop); again !=
			"waiting" || same != id {
			t.Fatalf("after %d of 2: %s, %s", i, again, same)
		}
		s.says(t, page, who, id, "OPS-7")
	}
	if how, _, said := outcome(t, session, "proxmox_stop_container", stop); how != "succeeded" {
		t.Fatalf("%s: %s", how, said)
	}
	if n := s.stops(); n != 1 {
		t.Errorf("it was stopped %d times", n)
	}
	out, err := s.command("audit", "tail").Output()
	must(t, err)
	if !strings.Contains(string(out), "approved by ann (OPS-7), bob (OPS-7)") {
		t.Errorf("%s", out)
	}
}

// stops counts how often a guest was stopped.
func (s *site) stops() (n int) {
	for _, e := range s.lab.Effects() {
		if len(e.Argv) > 1 && e.Argv[0] == "pct" && (e.Argv[1] == "stop" ||
			e.Argv[1] == "shutdown") {
			n++
		}
	}
	return n
}

var hidden = regexp.MustCompile(`action="(/approvals/[^"]+)"><input type="hidden" ` +
	`name="(form|ticket)" value="([^"]+)"`)

// says signs a person in with a link, and approves a request on the page.
func (s *site) says(t *testing.T, page, who, id, ticket string) {
	t.Helper()
	link, err := s.command("approvals", "link", "--as", who).Output()
	must(t, err)
	jar, err := cookiejar.New(nil)
	must(t, err)
	web := &http.Client{Jar: jar}
	send := func(method, at string, form url.Values) string {
		t.Helper()
		r, err := http.NewRequest(method, at, strings.NewReader(form.Encode()))
		must(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "http://"+page)
		res, err := web.Do(r)
		must(t, err)
		defer res.Body.Close()
		var b strings.Builder
		if err := res.Write(&b); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %s", method, at, b.String())
		}
		return b.String()
	}
	at := regexp.MustCompile(`http://\S+`).FindString(string(link))
	for action, form := range map[string]url.Values{"/approvals/login": {}} {
		m := hidden.FindStringSubmatch(send("GET", at, nil))
		if m == nil || m[1] != action {
			t.Fatalf("no form: %s", link)
		}
		form.Set(m[2], m[3])
		send("POST", "http://"+page+action, form)
	}
	for _, m := range hidden.FindAllStringSubmatch(send("GET", "http://"+page+"/approvals/"+id,
		nil), -1) {
		if m[1] == "/approvals/"+id {
			send("POST", "http://"+page+m[1], url.Values{m[2]: {m[3]}, "verdict": {"approve"},
				"ticket": {ticket}, "note": {"it hangs"}})
			return
		}
	}
	t.Fatalf("no form for %s", id)
}
