package approval_test

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/terms"
)

// browser keeps a cookie and sends what a browser would.
type browser struct {
	t      testing.TB
	h      http.Handler
	cookie *http.Cookie
}

type page struct {
	status int
	body   string
	header http.Header
}

func (b *browser) send(method, path string, form url.Values, change ...func(*http.Request)) page {
	b.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	r.Host = "127.0.0.1:8443"
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "http://127.0.0.1:8443")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if b.cookie != nil {
		r.AddCookie(b.cookie)
	}
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r)
	res := w.Result()
	body, err := io.ReadAll(res.Body)
	must(b.t, err)
	for _, c := range res.Cookies() {
		if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/approvals" {
			b.t.Errorf("cookie %v is not for the page alone", c)
		}
		b.cookie = c
	}
	for name, want := range map[string]string{"Content-Security-Policy": "frame-ancestors 'none'",
		"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff",
		"Referrer-Policy": "same-origin", "Cache-Control": "no-store"} {
		if !strings.Contains(res.Header.Get(name), want) {
			b.t.Errorf("%s %s: %s is %q, want %q", method, path, name, res.Header.Get(name), want)
		}
	}
	if csp := res.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp,
		"default-src 'none'") ||
		strings.Contains(csp, "script") ||
		strings.Contains(csp, "unsafe") {
		b.t.Errorf("%s %s: the policy %q", method, path, csp)
	}
	if strings.Contains(string(body), "<script") {
		b.t.Errorf("%s %s has a script", method, path)
	}
	return page{res.StatusCode, string(body), res.Header}
}

// signedIn is a browser after following a link.
func (w *world) signedIn(name string) *browser {
	w.t.Helper()
	b := &browser{t: w.t, h: w.a.Handler()}
	link, _, err := w.a.Link(w.t.Context(), name)
	must(w.t, err)
	if p := b.send("POST", "/approvals/login",
		url.Values{"ticket": {ticketOf(w.t, link)}}); p.status != http.StatusSeeOther ||
		b.cookie == nil {
		w.t.Fatalf("signing in: %d %s", p.status, p.body)
	}
	return b
}

func ticketOf(t testing.TB, link string) string {
	t.Helper()
	u, err := url.Parse(link)
	must(t, err)
	return u.Query().Get("ticket")
}

var formField = regexp.MustCompile(
	`<form method="post" action="/approvals/([^"]+)"><input type="hidden" name="form" ` +
		`value="([^"]+)">`,
)

func formOf(t testing.TB, body, action string) string {
	t.Helper()
	for _, m := range formField.FindAllStringSubmatch(body, -1) {
		if m[1] == action {
			return m[2]
		}
	}
	t.Fatalf("no form for %s in\n%s", action, body)
	return ""
}

func (w *world) state(id string) string {
	w.t.Helper()
	list, err := w.a.Requests(w.t.Context(), id, "")
	must(w.t, err)
	if len(list) != 1 {
		return "gone"
	}
	return list[0].State
}

func TestAPersonApprovesOnThePage(t *testing.T) {
	for verdict, want := range map[string]string{"approve": approval.Approved,
		"deny": approval.Denied} {
		w := newWorld(t)
		id := w.waits(call())
		b := w.signedIn("ann")
		if p := b.send("GET", "/approvals", nil); p.status != 200 ||
			!strings.Contains(p.body, id) ||
			!strings.Contains(p.body, "delete_guest") {
			t.Fatalf("the list: %d %s", p.status, p.body)
		}
		p := b.send("GET", "/approvals/"+id, nil)
		for _, see := range []string{"agent-a", "delete_guest", "pct destroy VMID",
			"<pre>pct destroy\npct status\n</pre>", "105", "192.0.2.1", "Calls of tier red run " +
				"only after", "15 min", "An agent wrote them", "sha256:aa", "rev1"} {
			if !strings.Contains(p.body, see) {
				t.Errorf("the page does not show %q", see)
			}
		}
		if p := b.send("POST", "/approvals/"+id,
			url.Values{"form": {formOf(t, p.body, id)}, "verdict": {verdict},
				"note": {"seen"}}); p.status != http.StatusSeeOther {
			t.Fatalf("%s: %d %s", verdict, p.status, p.body)
		}
		list, err := w.a.Requests(t.Context(), id, "")
		must(t, err)
		if r := list[0]; r.State != want || r.By != "ann" || r.Channel != "web" ||
			r.Note != "seen" {
			t.Errorf("%s: %+v", verdict, r)
		}
		if p := b.send("GET", "/approvals/"+id, nil); strings.Contains(p.body, `value="approve"`) ||
			want == approval.Denied && strings.Contains(p.body, `name="verdict"`) {
			t.Error("what was decided can be decided again")
		}
	}
}

func TestLookingChangesNothing(t *testing.T) {
	w := newWorld(t)
	id := w.waits(call())
	link, _, err := w.a.Link(t.Context(), "ann")
	must(t, err)
	b := w.signedIn("ann")
	form := formOf(t, b.send("GET", "/approvals/"+id, nil).body, id)
	u, err := url.Parse(link)
	must(t, err)
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"} {
		for _, path := range []string{u.RequestURI(), "/approvals", "/approvals/" + id,
			"/approvals/" + id + "?verdict=approve&form=" + form, "/approvals/" + id +
				"/approve", "/approvals/logout"} {
			b.send(method, path, url.Values{"verdict": {"approve"}, "form": {form}})
			(&browser{t: t, h: b.h}).send(method, path, nil) // a preview of the link
		}
	}
	if s := w.state(id); s != approval.Waiting {
		t.Errorf("the request is %s", s)
	}
	if p := (&browser{t: t, h: b.h}).send("POST", "/approvals/login",
		url.Values{"ticket": {u.Query().Get("ticket")}}); p.status != http.StatusSeeOther {
		t.Errorf("a previewed link no longer signs in: %d", p.status)
	}
	// A token in the address is no token in the form.
	if p := b.send("POST", "/approvals/"+id+"?verdict=approve&form="+url.QueryEscape(form),
		nil); p.status != http.StatusForbidden ||
		w.state(id) != approval.Waiting {
		t.Errorf("a POST without a body: %d, %s", p.status, w.state(id))
	}
}

func TestOnlyTheSessionsOwnFormDecides(t *testing.T) {
	w := newWorld(t)
	id, other := w.waits(call()), ""
	c := call()
	c.Args.Digest = "sha256:other"
	other = w.waits(c)
	b, bob := w.signedIn("ann"), w.signedIn("bob")
	form := formOf(t, b.send("GET", "/approvals/"+id, nil).body, id)
	good := url.Values{"form": {form}, "verdict": {"approve"}}
	with := func(k, v string) url.Values {
		out := url.Values{}
		for name, vs := range good {
			out[name] = vs
		}
		out[k] = []string{v}
		return out
	}
	header := func(k, v string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set(k,
				v)
		}
	}
	for name, tt := range map[string]struct {
		b      *browser
		form   url.Values
		change func(*http.Request)
		status int
	}{
		"without the form's token": {b, with("form", ""), nil, 403},
		"with a guessed token":     {b, with("form", strings.Repeat("A", 43)), nil, 403},
		"with the token of another form": {b,
			with("form", formOf(t, b.send("GET", "/approvals/"+other, nil).body, other)), nil, 403},
		"with another session's token": {bob, good, nil, 403},
		"without a session":            {&browser{t: t, h: b.h}, good, nil, 401},
		"with a session of its own making": {&browser{t: t, h: b.h,
			cookie: &http.Cookie{Name: b.cookie.Name,
				Value: "eyJuIjoiYW5uIiwiZSI6OTk5OTk5OTk5OTk5OX0.AAAA"}}, good, nil, 401},
		"from another site": {b, good, header("Origin", "https://evil.example"),
			403},
		"from an opaque origin": {b, good, header("Origin", "null"), 403},
		"from another port": {b, good, header("Origin", "http://127.0.0.1:9999"),
			403},
		"as the browser says, cross-site": {b, good, header("Sec-Fetch-Site", "cross-site"), 403},
		"as the browser says, same-site":  {b, good, header("Sec-Fetch-Site", "same-site"), 403},
		"by a rebound name": {b, good,
			func(r *http.Request) { r.Host = "evil.example:8443" }, 403},
		"with a body without end":     {b, with("note", strings.Repeat("x", 1<<20)), nil, 403},
		"with a verdict that is none": {b, with("verdict", "maybe"), nil, 400},
		"as JSON": {b, good, header("Content-Type", "application/json"),
			403},
	} {
		t.Run(name, func(t *testing.T) {
			change := func(*http.Request) {}
			if tt.change != nil {
				change = tt.change
			}
			if p := tt.b.send("POST", "/approvals/"+id, tt.form, change); p.status != tt.status ||
				w.state(id) != approval.Waiting {
				t.Errorf("%d, want %d; the request is %s", p.status, tt.status, w.state(id))
			}
		})
	}
	if p := b.send("POST", "/approvals/"+id, good); p.status != 303 ||
		w.state(id) != approval.Approved {
		t.Errorf("the form itself: %d, %s", p.status, w.state(id))
	}
}

func TestALinkSignsInOnce(t *testing.T) {
	w := newWorld(t)
	other, _ := w.process()
	try := func(a *approval.Approvals, ticket string) int {
		return (&browser{t: t, h: a.Handler()}).send("POST", "/approvals/login",
			url.Values{"ticket": {ticket}}).status
	}
	fresh := func() string {
		link, _, err := w.a.Link(t.Context(), "ann")
		must(t, err)
		return ticketOf(t, link)
	}
	used := fresh()
	if s := try(other, used); s != 303 {
		t.Fatalf("a link of another process: %d", s)
	}
	if s := try(w.a, used); s != 401 {
		t.Errorf("a second use: %d", s)
	}
	good := fresh()
	for i := range good {
		for _, c := range []byte("A.b0") {
			if forged := good[:i] + string(c) + good[i+1:]; forged != good &&
				try(w.a, forged) != 401 {
				t.Errorf("changed at %d it signs in", i)
			}
		}
	}
	if s := try(w.a, w.signedIn("ann").cookie.Value); s != 401 {
		t.Errorf("a session as a link: %d", s)
	}
	b := &browser{t: t, h: w.a.Handler(),
		cookie: &http.Cookie{Name: "caponier_approvals", Value: good}}
	if p := b.send("GET", "/approvals", nil); p.status != 401 {
		t.Errorf("a link as a session: %d", p.status)
	}
	w.ahead.Store((5 * time.Minute).Milliseconds())
	if s := try(w.a, good); s != 401 {
		t.Errorf("after five minutes: %d", s)
	}
	if _, _, err := w.a.Link(t.Context(), "mallory"); err == nil ||
		!strings.Contains(err.Error(), "approvers") {
		t.Errorf("a link for a name that is not listed: %v", err)
	}
}

func TestASessionEnds(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"with its time": func(w *world) { w.ahead.Store((8 * time.Hour).Milliseconds()) },
		"when its name is no longer listed": func(w *world) {
			w.a,
				w.s = w.process(func(o *approval.Options) { o.Approvers = []string{"bob"} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			b := w.signedIn("ann")
			if p := b.send("GET", "/approvals", nil); p.status != 200 {
				t.Fatalf("before: %d", p.status)
			}
			end(w)
			b.h = w.a.Handler()
			if p := b.send("GET", "/approvals", nil); p.status != 401 {
				t.Errorf("after: %d", p.status)
			}
		})
	}
	t.Run("by signing out, on the server too", func(t *testing.T) {
		w := newWorld(t)
		b, other := w.signedIn("ann"), w.signedIn("ann")
		kept := *b.cookie
		out := formOf(t, b.send("GET", "/approvals", nil).body, "logout")
		if p := b.send("POST", "/approvals/logout", url.Values{"form": {out}}); p.status != 200 {
			t.Errorf("signing out: %d", p.status)
		}
		if b.cookie.Value != "" || b.cookie.Expires.After(time.Now()) {
			t.Errorf("the cookie stays: %v", b.cookie)
		}
		b.cookie = &kept
		if p := b.send("GET", "/approvals", nil); p.status != 401 {
			t.Errorf("with the cookie from before: %d", p.status)
		}
		if p := other.send("GET", "/approvals", nil); p.status != 200 {
			t.Errorf("another session of the same person: %d", p.status)
		}
	})
	t.Run("by an operator", func(t *testing.T) {
		w := newWorld(t)
		ann, bob := w.signedIn("ann"), w.signedIn("bob")
		link, _, err := w.a.Link(t.Context(), "ann")
		must(t, err)
		list, err := w.a.Sessions(t.Context())
		must(t, err)
		if len(list) != 2 || strings.Contains(ann.cookie.Value+bob.cookie.Value, list[0].ID) {
			t.Errorf("sessions %+v", list)
		}
		_, err = w.a.EndSessions(t.Context(), "", "ann")
		must(t, err)
		if p := ann.send("GET", "/approvals", nil); p.status != 401 {
			t.Errorf("the one that was ended: %d", p.status)
		}
		if p := bob.send("GET", "/approvals", nil); p.status != 200 {
			t.Errorf("the other: %d", p.status)
		}
		if p := (&browser{t: t, h: w.a.Handler()}).send("POST", "/approvals/login",
			url.Values{"ticket": {ticketOf(t, link)}}); p.status != 401 {
			t.Errorf("a link that ann had: %d", p.status)
		}
	})
	t.Run("when the clock is set back", func(t *testing.T) {
		w := newWorld(t)
		b := w.signedIn("ann")
		w.ahead.Store(-time.Hour.Milliseconds())
		if p := b.send("GET", "/approvals", nil); p.status != 401 {
			t.Errorf("after: %d", p.status)
		}
	})
}

func TestAYesIsTakenBackOnThePage(t *testing.T) {
	w := newWorld(t)
	id := w.waits(call())
	w.approve(id)
	b := w.signedIn("bob")
	p := b.send("GET", "/approvals/"+id, nil)
	if !strings.Contains(p.body, "Take the approval back") ||
		strings.Contains(p.body, "Approve once") {
		t.Errorf("the page of an approved request: %s", p.body)
	}
	b.send("POST", "/approvals/"+id, url.Values{"form": {formOf(t, p.body, id)},
		"verdict": {"deny"}})
	if s := w.state(id); s != approval.Denied {
		t.Errorf("the request is %s", s)
	}
}

// A name that only looks like this machine may be a stranger's.
func TestHostsOfThePage(t *testing.T) {
	w := newWorld(t, func(o *approval.Options) { o.URL = "https://approve.example.org" })
	b := w.signedIn("ann")
	for host, want := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:8443": 200, "localhost:1": 200, "[::1]:80": 200, "[::1]": 200,
		"approve.example.org": 200, "APPROVE.example.org": 200,
		"127.0.0.1:80.evil.test": 403, "127.0.0.1:": 403, "127.0.0.1:99999": 403,
		"127.0.0.1.evil.test": 403, "[127.0.0.1]evil.test": 403, "localhost.evil.test:80": 403,
		"[::1].evil.test": 403, "evil.test": 403, "approve.example.org.evil.test": 403,
		"approve.example.org:80.evil.test": 403, "": 403, "[": 403, "::1:80": 403,
		"127.0.0.1@evil.test": 403, "127.0.0.1 evil.test": 403, "localhost:http": 403,
	} {
		p := b.send("GET", "/approvals", nil, func(r *http.Request) { r.Host = host })
		if p.status != want {
			t.Errorf("Host %q: %d, want %d", host, p.status, want)
		}
	}
}

// What approvers read marks letters that imitate others, wherever they stand.
func TestLettersThatImitateOthersAreMarked(t *testing.T) {
	w := newWorld(t)
	c := call()
	const cyrillic = "n\u0456ghtly-backup" // the i is Cyrillic
	c.Args.Value = map[string]any{"name": cyrillic}
	c.Targets.Services = []string{cyrillic}
	id := w.waits(c)
	b := w.signedIn("ann")
	list, err := w.a.Requests(t.Context(), id, "")
	must(t, err)
	var printed strings.Builder
	must(t, list[0].Print(&printed))
	for name, text := range map[string]string{"the list": b.send("GET", "/approvals", nil).body,
		"the page":     b.send("GET", "/approvals/"+id, nil).body,
		"the terminal": printed.String()} {
		text = html.UnescapeString(text)
		if strings.Contains(text, cyrillic) || !strings.Contains(text, "‹U+0456›") {
			t.Errorf("%s shows it unmarked:\n%s", name, text)
		}
	}
}

func TestTheRequesterDoesNotDecide(t *testing.T) {
	w := newWorld(t)
	c := call()
	c.Principal.ID = "agent-a" // as Agent-A, who may approve
	id := w.waits(c)
	b := w.signedIn("Agent-A")
	p := b.send("GET", "/approvals/"+id, nil)
	if strings.Contains(p.body, `name="verdict"`) ||
		!strings.Contains(p.body, "somebody else has to decide") {
		t.Error("the page offers it")
	}
	// Even with a form made for another person's eyes: the check is not in the page.
	if _, err := w.a.Decide(t.Context(), approval.Verdict{Request: id, Channel: "web",
		Approve: true, By: "Agent-A"}); err == nil ||
		w.state(id) != approval.Waiting {
		t.Errorf("Decide: %v, %s", err, w.state(id))
	}
}

func TestGuessedIDsTellNothing(t *testing.T) {
	w := newWorld(t)
	id := w.waits(call())
	stranger := &browser{t: t, h: w.a.Handler()}
	real, guess := stranger.send("GET", "/approvals/"+id, nil), stranger.send("GET",
		"/approvals/aaaaaaaaaaaaaaaa", nil)
	if real.status != 401 || real.status != guess.status || real.body != guess.body {
		t.Errorf("a request that exists: %d, one that does not: %d", real.status, guess.status)
	}
	b := w.signedIn("ann")
	for _, path := range []string{"/approvals/aaaaaaaaaaaaaaaa", "/approvals/%27%20OR%201=1",
		"/approvals/..%2f..%2fetc%2fpasswd", "/approvals/%00"} {
		if p := b.send("GET", path, nil); p.status != 404 {
			t.Errorf("%s: %d", path, p.status)
		}
	}
}

func TestAToolThatMayRunAnyCommandIsMarked(t *testing.T) {
	loud := plaintext.Commands([]string{terms.CallersText})[0]
	w := newWorld(t)
	c := call()
	c.Tool.Commands = []string{"pct status", "*"}
	p := w.signedIn("ann").send("GET", "/approvals/"+w.waits(c), nil)
	if !strings.Contains(p.body, `<pre>pct status`+"\n"+`<strong class="any">`+loud+`</strong>`) {
		t.Errorf("the page: %s", p.body)
	}
	var b strings.Builder
	list, err := w.a.Requests(t.Context(), "", "")
	must(t, err)
	if err := list[0].Print(&b); err != nil || !strings.Contains(b.String(), "may run    "+loud) {
		t.Errorf("%s, %v", b.String(), err)
	}
	c = call()
	c.Tool.Commands, c.Args.Digest = nil, "sha256:106"
	p = w.signedIn("ann").send("GET", "/approvals/"+w.waits(c), nil)
	if !strings.Contains(p.body, "<pre>none\n</pre>") {
		t.Errorf("no command: %s", p.body)
	}
}

func TestMarkupInWhatAnAgentSendsStaysText(t *testing.T) {
	w := newWorld(t)
	c := call()
	hostile := `</pre></div><form method=post action=/approvals/x><button name=verdict ` +
		`value=approve>OK</button></form><script>alert(1)</script><img src=x ` +
		`onerror=alert(1)>{{.Form}}` + "\u202e\x00"
	c.Args.Value = map[string]any{"x": hostile, hostile: "y"}
	c.Principal.ID, c.Tool.Runs, c.Tool.Commands, c.Targets.Services = "<b>agent", hostile,
		[]string{
			hostile}, []string{
			hostile,
		}
	c.Commands = []terms.Command{
		{
			Arg: "x",
			Lowered: terms.Lowered{Parsed: true,
				Calls: []terms.Simple{{Argv: []string{"echo", hostile}}}},
		},
	}
	d := red
	d.Denied = []terms.Reason{{ID: "site", Msg: hostile}}
	_, err := w.a.Confirm(t.Context(), c, seen(c, d), quiet)
	list, lerr := w.a.Requests(t.Context(), "", "")
	must(t, lerr)
	if len(list) != 1 {
		t.Fatal(err)
	}
	b := w.signedIn("ann")
	for _, path := range []string{"/approvals", "/approvals/" + list[0].ID} {
		p := b.send("GET", path, nil)
		for _, tag := range []string{"<script", "<img", "<b>agent", "<form method=post", "\u202e",
			"\x00"} {
			if p.status != 200 || strings.Contains(p.body, tag) {
				t.Errorf("%s: %d, has %q", path, p.status, tag)
			}
		}
		if strings.Count(p.body, "<form") > 2 {
			t.Errorf("%s has a form that is not ours", path)
		}
	}
}

func TestTheWebhookCarriesALinkAndNoAuthority(t *testing.T) {
	secret := strings.Repeat("s", 32)
	var calls atomic.Int32
	got := make(chan *http.Request, 10)
	bodies := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
		got <- r
	}))
	defer hook.Close()
	w := newWorld(t, func(o *approval.Options) {
		o.Webhook = approval.Webhook{URL: hook.URL, Secret: secret}
		o.URL = "https://approve.example.org"
	})
	id := w.waits(call())
	w.waits(call()) // joins: the webhook is not called twice
	r, body := <-got, <-bodies
	at := r.Header.Get(approval.TimestampHeader)
	if r.Header.Get(approval.SignatureHeader) != approval.Sign(secret, at, []byte(body)) ||
		r.Header.Get(approval.SignatureHeader) == approval.Sign(secret, at+"0", []byte(body)) {
		t.Errorf("signature %q", r.Header.Get(approval.SignatureHeader))
	}
	var n map[string]any
	must(t, json.Unmarshal([]byte(body), &n))
	if n["link"] != "https://approve.example.org/approvals/"+id || n["principal"] != "agent-a" ||
		n["tool"] != "delete_guest" ||
		n["target"] != "guest 105, node pve1" {
		t.Errorf("it says %s", body)
	}
	b := &browser{t: t, h: w.a.Handler()}
	if p := b.send("GET", "/approvals/"+id, nil,
		func(r *http.Request) { r.Host = "approve.example.org" }); p.status != 401 ||
		strings.Contains(p.body, "delete_guest") {
		t.Errorf("following the link without signing in: %d", p.status)
	}
	w.a.Close()
	if calls.Load() != 2 {
		t.Errorf("the webhook was called %d times, want one failure and one success", calls.Load())
	}
}

func TestADeadWebhookApprovesNothing(t *testing.T) {
	redirected := atomic.Bool{}
	elsewhere := httptest.NewServer(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { redirected.Store(true) }))
	defer elsewhere.Close()
	hook := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer hook.Close()
	w := newWorld(t, func(o *approval.Options) {
		o.Webhook = approval.Webhook{URL: hook.URL, Secret: strings.Repeat("s", 32)}
	})
	id := w.waits(call())
	time.Sleep(100 * time.Millisecond)
	began := time.Now()
	w.a.Close()
	if took := time.Since(began); took > 20*time.Second || redirected.Load() ||
		w.state(id) != approval.Waiting {
		t.Errorf("Close took %s, redirect followed %v, the request is %s", took, redirected.Load(),
			w.state(id))
	}
}

// Of everything that is posted to the page, only the form that was made for this session and this
// request decides, and only with one of the two verdicts.
func FuzzForms(f *testing.F) {
	f.Add("POST", "", "verdict=approve&form=FORM", "application/x-www-form-urlencoded")
	f.Add("POST", "", "verdict=deny&form=FORM&verdict=approve", "application/x-www-form-urlencoded")
	f.Add("POST", "?verdict=approve&form=FORM", "", "application/x-www-form-urlencoded")
	f.Add("POST", "/look", "verdict=approve&form=FORM", "text/plain")
	f.Add("GET", "?form=FORM&verdict=approve", "", "")
	f.Add("POST", "", "verdict=Approve&form=FORM;", "multipart/form-data; boundary=x")
	w, n, id, form := newWorld(f), 0, "", ""
	var b *browser
	f.Fuzz(func(t *testing.T, method, path, body, kind string) {
		if !regexp.MustCompile(`^[A-Z]{1,8}$`).MatchString(method) || len(path)+len(body) > 4096 {
			return
		}
		w.t = t
		if n++; form == "" {
			c := call()
			c.Args.Digest = fmt.Sprint("sha256:", n)
			id = w.waits(c)
		}
		if form == "" || n%100 == 0 { // what was posted may have ended the session
			b = w.signedIn("ann")
			form = formOf(t, b.send("GET", "/approvals/"+id, nil).body, id)
		}
		u, err := url.Parse("/approvals/" + id + strings.ReplaceAll(path, "FORM", form))
		if err != nil || u.Host != "" {
			return
		}
		body = strings.ReplaceAll(body, "FORM", form)
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Method, r.URL, r.Host = method, u, "127.0.0.1:8443"
		r.Header.Set("Content-Type", kind)
		r.AddCookie(b.cookie)
		b.h.ServeHTTP(httptest.NewRecorder(), r)
		state := w.state(id)
		if state == approval.Waiting {
			return
		}
		with := form
		form = ""
		read := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		read.Header.Set("Content-Type", kind)
		read.ParseMultipartForm(1 << 20)
		want := map[string]string{"approve": approval.Approved, "deny": approval.Denied}
		if method != http.MethodPost || u.EscapedPath() != "/approvals/"+id ||
			read.PostFormValue("form") != with || want[read.PostFormValue("verdict")] != state {
			t.Fatalf("%s %s with %q (%s) made it %s", method, u, body, kind, state)
		}
	})
}

// A signature is good for its own timestamp and body alone.
func FuzzWebhookSignature(f *testing.F) {
	f.Add("secret-of-16-bytes", "1700000000", []byte(`{"id":"a"}`), "1700000001", []byte("{}"))
	f.Add("k", "1", []byte("2.3"), "1.2", []byte("3"))
	f.Fuzz(func(t *testing.T, secret, at string, body []byte, at2 string, body2 []byte) {
		digits := regexp.MustCompile(`^[0-9]{1,19}$`)
		if !digits.MatchString(at) || !digits.MatchString(at2) {
			return
		}
		same := at == at2 && string(body) == string(body2)
		one, two := approval.Sign(secret, at, body), approval.Sign(secret, at2, body2)
		if (one == two) != same || one == approval.Sign(secret+"x", at, body) {
			t.Fatalf("%s %q and %s %q have the signatures %s and %s", at, body, at2, body2, one,
				two)
		}
	})
}
