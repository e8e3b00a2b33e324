package approval_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/approval"
)

// What is below the console's path is served to who is signed in alone, with the page's headers,
// and a POST needs the token of its own form.
func TestTheConsoleStandsBehindTheSignIn(t *testing.T) {
	var asked []string // who, method and path
	w := newWorld(t, func(o *approval.Options) {
		o.Viewers = []string{"ann"}
		o.Console = func(w http.ResponseWriter, r *http.Request, who string,
			token func(string) string) {
			asked = append(asked, who+" "+r.Method+" "+r.URL.Path)
			_, _ = w.Write([]byte(token(r.URL.Path)))
		}
	})
	const path = "/approvals/console/freeze"
	stranger := &browser{t: t, h: w.a.Handler()}
	for _, method := range []string{"GET", "POST", "PUT", "DELETE", "HEAD"} {
		for _, p := range []string{path, "/approvals/console", "/approvals/console/",
			"/approvals/console/console.css"} {
			if got := stranger.send(method, p, nil); got.status != http.StatusUnauthorized {
				t.Errorf("%s %s without a sign-in: %d", method, p, got.status)
			}
		}
	}
	ann, bob := w.signedIn("ann"), w.signedIn("bob")
	token := ann.send("GET", path, nil).body
	for name, x := range map[string]struct {
		b     *browser
		path  string
		token string
	}{"no token": {ann, path, ""}, "of another session": {bob, path, token},
		"of another form": {ann, path, ann.send("GET", "/approvals/console", nil).body},
		"at another form": {ann, "/approvals/console", token}} {
		got := x.b.send("POST", x.path, url.Values{"form": {x.token}})
		if got.status != http.StatusForbidden || !strings.Contains(got.body, "was not made for") {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	cross := func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }
	if got := ann.send("POST", path, url.Values{"form": {token}}, cross); got.status != 403 {
		t.Errorf("from another site: %d", got.status)
	}
	for _, a := range asked {
		if !strings.Contains(a, " GET ") {
			t.Errorf("the console was asked %s", a)
		}
	}
	if got := ann.send("POST", path, url.Values{"form": {token}}); got.status != 200 ||
		asked[len(asked)-1] != "ann POST "+path {
		t.Errorf("its own form: %d, %v", got.status, asked)
	}
	for who, link := range map[*browser]bool{ann: true, bob: false} {
		if got := who.send("GET", "/approvals", nil); strings.Contains(got.body,
			`href="/approvals/console"`) != link {
			t.Errorf("a link to the console: want %v in %s", link, got.body)
		}
	}
}

// The console is for names that may sign in; freezing is for names that may see it.
func TestTheConsolesNamesAreChecked(t *testing.T) {
	for _, x := range []struct {
		approvers, viewers, freezers []string
		listen, want                 string
	}{
		{[]string{"ann"}, nil, nil, "127.0.0.1:1", ""},
		{[]string{"ann"}, []string{"ann"}, []string{"ann"}, "127.0.0.1:1", ""},
		{[]string{"ann"}, []string{"*"}, []string{"ann"}, "127.0.0.1:1", ""},
		{[]string{"ann"}, []string{"bob"}, nil, "127.0.0.1:1", `approval.console: "bob"`},
		{[]string{"ann"}, []string{"Ann"}, nil, "127.0.0.1:1", `approval.console: "Ann"`},
		{[]string{"ann", "bob"}, []string{"ann"}, []string{"bob"}, "127.0.0.1:1",
			`approval.freezers: "bob"`},
		{[]string{"ann"}, nil, []string{"*"}, "127.0.0.1:1", "approval.freezers needs"},
		{[]string{"ann"}, []string{"ann"}, nil, "", "needs approval.listen"},
	} {
		err := approval.Options{Approvers: x.approvers, Viewers: x.viewers, Freezers: x.freezers,
			Listen: x.listen}.Validate()
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: %v", x, err)
		}
	}
}
