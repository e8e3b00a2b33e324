package egress

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

func TestCredentials(t *testing.T) {
	const secret = `s3cr3t+key/"quoted"`
	w := lab(t, Options{})
	other := ""
	var otherGot http.Header
	origin := w.serve("a.example", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") != "Key "+secret {
			rw.WriteHeader(401)
		}
		switch r.URL.Path {
		case "/away":
			http.Redirect(rw, r, other+"/?k="+url.QueryEscape(secret), http.StatusFound)
		case "/home":
			http.Redirect(rw, r, "/", http.StatusTemporaryRedirect)
		default:
			rw.Header().Set("X-Echo", secret)
			fmt.Fprintf(rw, "%s|%s|%q|%s", secret, url.QueryEscape(secret), secret,
				base64.StdEncoding.EncodeToString([]byte(secret)))
		}
	})
	other = w.serve("b.example", func(rw http.ResponseWriter, r *http.Request) {
		otherGot = r.Header
		io.WriteString(rw, r.URL.RawQuery)
	})
	w.opts.Credentials = []Credential{
		{Name: "ci", Origins: []string{origin}, Tools: []string{"curl"}, Header: "x-key",
			Prefix: "Key ", Secret: secret},
	}
	var err error
	if w.e, err = New(w.opts); err != nil {
		t.Fatal(err)
	}
	v, err := w.ask(abi.HTTPRequest{URL: origin + "/", Credential: "ci"})
	if err != nil || v.Status != 200 || v.Text != `[redacted]|[redacted]|"[redacted]"|[redacted]` ||
		strings.Contains(fmt.Sprint(v.Headers), "s3cr3t") {
		t.Errorf("an echo gave %+v, %v", v, err)
	}
	if v, err = w.ask(abi.HTTPRequest{URL: origin + "/home", Credential: "ci",
		MaxHops: 1}); err != nil ||
		v.Status != 200 {
		t.Errorf("within the origin: status %d, %v; want the credential to stay", v.Status, err)
	}
	if v, err = w.ask(abi.HTTPRequest{URL: origin + "/away", Credential: "ci",
		MaxHops: 1}); err != nil ||
		otherGot.Get("X-Key") != "" ||
		strings.Contains(v.Text, "s3cr3t") {
		t.Errorf("across origins the other server got %v and the query %s, %v", otherGot, v.Text,
			err)
	}
	if v, err = w.ask(abi.HTTPRequest{URL: origin + "/"}); err != nil || v.Status != 401 {
		t.Errorf("without its name: status %d, %v; want 401", v.Status, err)
	}
	_, err = w.ask(abi.HTTPRequest{URL: other + "/", Credential: "ci"})
	failedWith(t, err, "bad_request", "credential", terms.Failed)
	w.listed = nil
	_, err = w.ask(abi.HTTPRequest{URL: origin + "/", Credential: "ci"})
	refusedFor(t, err, "egress", "lookup")
}

func FuzzScrub(f *testing.F) {
	f.Add("12345678", "x12345678y")
	f.Add("aaaaaaaaa", "aaaaaaaaaaaaaaaaaaaa")
	f.Fuzz(func(t *testing.T, secret, text string) {
		c := Credential{Name: "c", Origins: []string{"https://a.example"}, Tools: []string{"t"},
			Secret: secret}
		if _, err := c.ready(); err != nil || strings.Contains("[redacted]", secret) {
			return
		}
		e := &Egress{secrets: forms([]Credential{c})}
		if got := string(e.scrub([]byte(text + secret + text +
			url.QueryEscape(secret)))); strings.Contains(
			strings.ReplaceAll(got, "[redacted]", "\x00"),
			secret,
		) {
			t.Fatalf("%q is still in %q", secret, got)
		}
	})
}
