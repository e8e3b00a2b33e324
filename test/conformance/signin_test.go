//go:build conformance

package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/signin"
	"github.com/caponier-mcp/caponier/host/store"
)

// An approver signs in to the page at npm's oidc-provider, which holds the host to PKCE, to its
// secret and to the exact redirect URI, and takes each code once.
func TestAnApproverSignsInAtARealProvider(t *testing.T) {
	listen := fmt.Sprintf("127.0.0.1:%d", free(t))
	page := "http://" + listen + "/approvals"
	port := free(t)
	client := realClient(t, port, page+"/oidc/callback")
	serve := func(change func(*signin.Options)) (stop func()) {
		o := signin.Options{Issuer: fmt.Sprintf("http://127.0.0.1:%d", port),
			ClientID: client.ID, ClientSecret: client.Secret,
			People: []signin.Person{{Claim: "auth0|5f7c8ec7c33c6c004bbafe82", Name: "ann"}}}
		change(&o)
		return servePage(t, listen, o)
	}
	for name, c := range map[string]struct {
		change func(*signin.Options)
		status int
		text   string
	}{
		"as it should be": {func(*signin.Options) {}, http.StatusOK, "Sign out"},
		"a wrong secret": {func(o *signin.Options) { o.ClientSecret += "x" }, 401,
			"not signed in"},
		"somebody else": {func(o *signin.Options) { o.People[0].Claim = "auth0|x" }, 403,
			"knows you"},
		"a claim it lacks": {func(o *signin.Options) { o.Claim = "email" }, 403, "knows you"},
	} {
		stop := serve(c.change)
		status, body, back := browsePage(t, page)
		if status != c.status || !strings.Contains(body, c.text) {
			t.Errorf("%s: %d %s", name, status, body)
		}
		if back == nil || back.Query().Get("iss") == "" || back.Query().Get("code") == "" {
			t.Errorf("%s: the provider sends back %v", name, back)
		}
		stop()
	}
}

type registered struct {
	ID     string `json:"client_id"`
	Secret string `json:"client_secret"`
}

// realClient starts the provider until the test ends, and returns its client.
func realClient(t *testing.T, port int, redirect string) (c registered) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), node, "signin.mjs", fmt.Sprint(port), redirect)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if json.Unmarshal(lines.Bytes(), &c) == nil && c.Secret != "" {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return c
		}
	}
	t.Fatal("the provider did not start")
	return c
}

func servePage(t *testing.T, listen string, o signin.Options) (stop func()) {
	t.Helper()
	s, err := store.Open(store.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	a, err := approval.New(approval.Options{Approvers: []string{"ann"}, Listen: listen, OIDC: o}, s)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Serve(ctx, l) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		a.Close()
		s.Close()
	}
}

// browsePage signs in like a browser, and returns what it comes to, and where the provider sent it.
func browsePage(t *testing.T, page string) (status int, body string, back *url.URL) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), page+"/oidc/callback?") {
			back = r.URL
		}
		if len(via) > 10 {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	read := func(res *http.Response, err error) (*http.Response, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(text)
	}
	res, text := read(c.Post(page+"/oidc", "application/x-www-form-urlencoded", nil))
	to, ok := strings.CutPrefix(res.Header.Get("Refresh"), "0; url=")
	if !ok {
		t.Fatal(res.StatusCode, text)
	}
	res, text = read(c.Get(to))
	return res.StatusCode, text, back
}
