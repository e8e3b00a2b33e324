package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// world is a host, its provider, and a person whose browser follows what it is shown.
type world struct {
	t              *testing.T
	host, provider *httptest.Server
	dir            string
	say            strings.Builder

	resource map[string]any                     // changes of what the host says of itself
	server   map[string]any                     // and the provider of itself
	back     func(url.Values)                   // changes what the browser brings back
	token    func(http.ResponseWriter) bool     // answers in place of the token endpoint
	header   func(metadata string) string       // WWW-Authenticate
	opens    func(authorize, redirect *url.URL) // what else happens in the browser before

	mu        sync.Mutex // guards the following
	challenge string
	codes     int
	refreshed []string // refresh tokens that were used
	asked     url.Values
	opened    int
	good      map[string]bool // access tokens
	life      int             // of an access token, in seconds
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "signed-in"), good: map[string]bool{},
		life: 3600, resource: map[string]any{}, server: map[string]any{}}
	w.host = httptest.NewServer(http.HandlerFunc(w.serveHost))
	t.Cleanup(w.host.Close)
	w.provider = httptest.NewServer(http.HandlerFunc(w.serveProvider))
	t.Cleanup(w.provider.Close)
	return w
}

func (w *world) url() string { return w.host.URL + "/mcp" }

func answer(out http.ResponseWriter, doc map[string]any, changes map[string]any) {
	for k, v := range changes {
		doc[k] = v
		if v == nil {
			delete(doc, k)
		}
	}
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(doc)
}

const wellKnown = "/.well-known/oauth-protected-resource/mcp"

func (w *world) serveHost(out http.ResponseWriter, r *http.Request) {
	if r.URL.Path == wellKnown {
		answer(out, map[string]any{"resource": w.url(), "scopes_supported": []string{"caponier"},
			"authorization_servers": []string{w.provider.URL}}, w.resource)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.good[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")] {
		return
	}
	h := `Bearer resource_metadata="` + w.host.URL + wellKnown + `"`
	if w.header != nil {
		h = w.header(w.host.URL + wellKnown)
	}
	out.Header().Set("WWW-Authenticate", h)
	out.WriteHeader(http.StatusUnauthorized)
}

func (w *world) serveProvider(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch at := w.provider.URL; r.URL.Path {
	case "/.well-known/oauth-authorization-server":
		answer(out, map[string]any{"issuer": at, "authorization_endpoint": at + "/authorize",
			"token_endpoint": at + "/token", "registration_endpoint": at + "/register",
			"code_challenge_methods_supported":               []string{"S256"},
			"token_endpoint_auth_methods_supported":          []string{"none"},
			"authorization_response_iss_parameter_supported": true}, w.server)
	case "/register":
		out.WriteHeader(http.StatusCreated)
		answer(out, map[string]any{"client_id": "made", "token_endpoint_auth_method": "none"}, nil)
	case "/token":
		if w.token != nil && w.token(out) {
			return
		}
		_ = r.ParseForm()
		w.asked = r.PostForm
		if old := r.PostForm.Get("refresh_token"); old != "" {
			for _, used := range w.refreshed {
				if used == old {
					out.WriteHeader(http.StatusBadRequest)
					fmt.Fprint(out, `{"error":"invalid_grant"}`)
					return
				}
			}
			w.refreshed = append(w.refreshed, old)
		}
		w.codes++
		access := fmt.Sprint("access-", w.codes)
		w.good[access] = true
		answer(out, map[string]any{"access_token": access, "token_type": "Bearer",
			"refresh_token": fmt.Sprint("refresh-", w.codes), "expires_in": w.life}, nil)
	default:
		http.NotFound(out, r)
	}
}

// open is the person's browser: the provider knows the person, who agrees.
func (w *world) open(to string) error {
	u, err := url.Parse(to)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.opened++
	w.challenge = u.Query().Get("code_challenge")
	w.mu.Unlock()
	redirect, err := url.Parse(u.Query().Get("redirect_uri"))
	if err != nil {
		return err
	}
	if w.opens != nil {
		w.opens(u, redirect)
	}
	v := url.Values{"code": {"c"}, "state": {u.Query().Get("state")}, "iss": {w.provider.URL}}
	if w.back != nil {
		w.back(v)
	}
	redirect.RawQuery = v.Encode()
	res, err := http.Get(redirect.String())
	if err != nil {
		return err
	}
	return res.Body.Close()
}

func (w *world) signIn() *SignIn {
	w.t.Helper()
	s, err := New(Options{URL: w.url(), Dir: w.dir, Open: w.open, Say: &w.say})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// call makes a request as the bridge does, and returns what the host said last.
func (w *world) call(s *SignIn) (status int, err error) {
	w.t.Helper()
	for range 3 {
		token, err := s.Token(w.t.Context())
		if err != nil {
			return 0, err
		}
		r, err := http.NewRequest(http.MethodGet, w.url(), nil)
		if err != nil {
			w.t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			w.t.Fatal(err)
		}
		if status = res.StatusCode; status == http.StatusOK {
			return status, res.Body.Close()
		}
		if err := s.Refused(w.t.Context(), res, token); err != nil {
			return status, err
		}
	}
	return status, nil
}

func TestSomebodySignsInOnceAndStaysSignedIn(t *testing.T) {
	w := newWorld(t)
	if status, err := w.call(w.signIn()); err != nil || status != 200 {
		t.Fatal(status, err)
	}
	for k, want := range map[string]string{"grant_type": "authorization_code", "code": "c",
		"resource": w.url(), "client_id": "made"} {
		if got := w.asked.Get(k); got != want {
			t.Errorf("%s is %q, want %q", k, got, want)
		}
	}
	if w.challenge == "" || w.asked.Get("code_verifier") == "" {
		t.Error("no PKCE")
	}
	if said := w.say.String(); strings.Contains(said, "access-") || strings.Contains(said,
		"refresh-") || !strings.Contains(said, "/authorize?") {
		t.Errorf("said: %s", said)
	}
	if status, err := w.call(w.signIn()); err != nil || status != 200 || w.opened != 1 {
		t.Errorf("another process: %d %v, %d browsers", status, err, w.opened)
	}
	if was, err := Forget(w.dir, w.url()); err != nil || !was {
		t.Error(was, err)
	}
	if was, err := Forget(w.dir, w.url()); err != nil || was {
		t.Error("forgotten twice:", was, err)
	}
	if token, err := w.signIn().Token(t.Context()); err != nil || token != "" {
		t.Error(token, err)
	}
}

// A refresh token counts once: of processes that all need another access token, one asks for it.
func TestARefreshTokenIsUsedOnce(t *testing.T) {
	w := newWorld(t)
	w.life = 1 // has expired for the library, which allows for 10 s
	if status, err := w.call(w.signIn()); err != nil || status != 200 {
		t.Fatal(status, err)
	}
	w.mu.Lock()
	w.life, w.refreshed = 3600, nil
	w.mu.Unlock()
	var all sync.WaitGroup
	tokens := make([]string, 8)
	for i := range tokens {
		s := w.signIn()
		all.Go(func() {
			var err error
			if tokens[i], err = s.Token(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, got := range tokens {
		if got != tokens[0] || got == "" {
			t.Errorf("tokens %q", tokens)
		}
	}
	if len(w.refreshed) != 1 || w.opened != 1 {
		t.Errorf("refreshed with %q, %d browsers", w.refreshed, w.opened)
	}
}

// A token that the host no longer takes is refreshed, and where that does not help, the person
// signs in again. A provider that is away changes nothing.
func TestATokenThatIsRefusedIsReplaced(t *testing.T) {
	w := newWorld(t)
	s := w.signIn()
	_, _ = w.call(s)
	revoke := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		clear(w.good)
	}
	revoke()
	s = w.signIn()
	if status, err := w.call(s); err != nil || status != 200 || len(w.refreshed) != 1 ||
		w.opened != 1 {
		t.Fatalf("%d %v, refreshed with %q, %d browsers", status, err, w.refreshed, w.opened)
	}
	revoke()
	w.token = func(out http.ResponseWriter) bool {
		out.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(out, `{"error":"invalid_grant"}`)
		w.token = nil
		return true
	}
	if status, err := w.call(w.signIn()); err != nil || status != 200 || w.opened != 2 {
		t.Fatalf("%d %v, %d browsers", status, err, w.opened)
	}
	w.token = func(out http.ResponseWriter) bool {
		out.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	s = w.signIn()
	s.kept.Token.Expiry = time.Unix(1, 0)
	if err := s.file.write(s.kept); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Token(t.Context()); err == nil || !strings.Contains(err.Error(), "refreshing") {
		t.Errorf("without the provider: %v", err)
	}
	w.token = nil
	if token, err := w.signIn().Token(t.Context()); err != nil || token == "" || w.opened != 2 {
		t.Errorf("afterwards: %q %v, %d browsers", token, err, w.opened)
	}
}

func TestWhatIsNotTheSignInThatWasBegunIsRefused(t *testing.T) {
	for claim, x := range map[string]struct {
		change func(*world)
		why    string
	}{
		"metadata for another resource": {func(w *world) {
			w.resource["resource"] = "https://other.example/mcp"
		}, "signing in"},
		"metadata on another site": {func(w *world) {
			w.header = func(string) string {
				return `Bearer resource_metadata="https://evil.example/.well-known/x"`
			}
		}, "refers to another site"},
		"no metadata": {func(w *world) {
			w.header = func(string) string { return "Bearer" }
			w.resource["authorization_servers"] = nil
		}, "names no provider"},
		"a provider without https": {func(w *world) {
			w.resource["authorization_servers"] = []string{"http://idp.example"}
		}, "signing in"},
		"a provider that says to be another": {func(w *world) {
			w.server["issuer"] = "https://other.example"
		}, "does not match issuer"},
		"a provider without PKCE": {func(w *world) {
			w.server["code_challenge_methods_supported"] = nil
		}, "does not implement PKCE"},
		"a page of another scheme": {func(w *world) {
			w.server["authorization_endpoint"] = "file:///etc/passwd"
		}, "signing in"},
		"a page without https": {func(w *world) {
			w.server["authorization_endpoint"] = "http://idp.example/authorize"
		}, "signing in"},
		"an answer of another provider": {func(w *world) {
			w.back = func(v url.Values) { v.Set("iss", "https://other.example") }
		}, "does not match expected issuer"},
		"an answer without iss": {func(w *world) {
			w.back = func(v url.Values) { v.Del("iss") }
		}, "none was received"},
		"a person who says no": {func(w *world) {
			w.back = func(v url.Values) {
				v.Del("code")
				v.Set("error", "access_denied")
				v.Set("error_description", "no\x1b[2J")
			}
		}, `"access_denied": "no\x1b[2J"`},
		"a provider that registers nobody": {func(w *world) {
			w.server["registration_endpoint"] = nil
		}, "give --client-id"},
		"a token endpoint that redirects": {func(w *world) {
			w.token = func(out http.ResponseWriter) bool {
				out.Header().Set("Location", "https://evil.example/")
				out.WriteHeader(http.StatusTemporaryRedirect)
				return true
			}
		}, "token exchange failed"},
		"an answer without end": {func(w *world) {
			w.token = func(out http.ResponseWriter) bool {
				for range 3 << 10 {
					fmt.Fprint(out, strings.Repeat(" ", 1024))
				}
				fmt.Fprint(out, `{"access_token":"x","token_type":"Bearer"}`)
				return true
			}
		}, "token exchange failed"},
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t)
			x.change(w)
			status, err := w.call(w.signIn())
			if err == nil || status == 200 || !strings.Contains(err.Error(), x.why) {
				t.Errorf("%d %v, want %q", status, err, x.why)
			}
			if k, err := w.signIn().file.read(); k != nil || err != nil {
				t.Errorf("kept: %+v %v", k, err)
			}
		})
	}
}

// Requests that all wait for a sign-in that nobody makes open one browser, and all end with it.
func TestRequestsThatWaitTogetherAskOnce(t *testing.T) {
	w := newWorld(t)
	var waiting sync.WaitGroup
	waiting.Add(8)
	w.back = func(v url.Values) {
		waiting.Wait()
		time.Sleep(100 * time.Millisecond) // for those that come to the lock now
		v.Del("code")
		v.Set("error", "access_denied")
	}
	s := w.signIn()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			res, err := http.Get(w.url())
			waiting.Done()
			if err != nil {
				t.Error(err)
				return
			}
			if err = s.Refused(t.Context(), res, ""); err == nil ||
				!strings.Contains(err.Error(), "access_denied") {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if w.opened != 1 {
		t.Errorf("%d browsers", w.opened)
	}
	if _, err := w.call(s); err == nil || w.opened != 2 { // who comes later is asked again
		t.Errorf("later: %v, %d browsers", err, w.opened)
	}
}

// Another program of the machine that comes to the port neither ends the sign-in nor gives it a
// code of its own.
func TestOnlyTheBrowserThatKnowsTheStateCounts(t *testing.T) {
	w := newWorld(t)
	w.opens = func(authorize, redirect *url.URL) {
		for _, query := range []string{"", "code=evil", "code=evil&state=", "code=evil&state=x",
			"code=evil&state=x&state=" + authorize.Query().Get("state"),
			"error=access_denied&state=x"} {
			res, err := http.Get(redirect.String() + "?" + query)
			if err != nil || res.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: %v %v", query, res, err)
				continue
			}
			res.Body.Close()
		}
		if redirect.Hostname() != "127.0.0.1" || redirect.Path != "/callback" {
			t.Errorf("it goes back to %s", redirect)
		}
	}
	if status, err := w.call(w.signIn()); err != nil || status != 200 ||
		w.asked.Get("code") != "c" {
		t.Errorf("%d %v, code %q", status, err, w.asked.Get("code"))
	}
}

// A file that others may read, or could have put there, is not used.
func TestTokensAreForTheirOwnerAlone(t *testing.T) {
	if runtime.GOOS == "windows" {
		return
	}
	w := newWorld(t)
	if _, err := w.call(w.signIn()); err != nil {
		t.Fatal(err)
	}
	f := string(w.signIn().file)
	for path, want := range map[string]os.FileMode{f: 0o600, filepath.Dir(f): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}
	for claim, x := range map[string]struct {
		do, undo func() error
		why      string
	}{
		"others read it": {func() error { return os.Chmod(f, 0o640) },
			func() error { return os.Chmod(f, 0o600) }, "chmod 0600"},
		"others list the directory": {func() error { return os.Chmod(filepath.Dir(f), 0o755) },
			func() error { return os.Chmod(filepath.Dir(f), 0o700) }, "chmod 0700"},
		"it is a link": {func() error {
			return errors.Join(os.Rename(f, f+".real"), os.Symlink(f+".real", f))
		}, func() error { return os.Rename(f+".real", f) }, "is a link"},
	} {
		if err := x.do(); err != nil {
			t.Fatal(err)
		}
		_, err := New(Options{URL: w.url(), Dir: w.dir})
		if err == nil || !strings.Contains(err.Error(), x.why) {
			t.Errorf("%s: %v, want %q", claim, err, x.why)
		}
		if err := x.undo(); err != nil {
			t.Fatal(err)
		}
	}
	other, err := fileOf(w.dir, "https://other.example/mcp")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Link(f, string(other)); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{URL: "https://other.example/mcp", Dir: w.dir}); err == nil ||
		!strings.Contains(err.Error(), "is for") {
		t.Errorf("tokens of another host: %v", err)
	}
	if err := os.WriteFile(f, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{URL: w.url(), Dir: w.dir}); err == nil ||
		!strings.Contains(err.Error(), "--logout") {
		t.Error(err)
	}
}

func TestAPersonWhoDoesNotComeIsNotWaitedForWithoutEnd(t *testing.T) {
	w := newWorld(t)
	s := w.signIn()
	ctx, cancel := context.WithCancel(t.Context())
	s.o.Open = func(string) error { cancel(); return nil }
	err := s.Login(ctx)
	if !errors.Is(err, context.Canceled) && (err == nil || !strings.Contains(err.Error(),
		"canceled")) {
		t.Error(err)
	}
}
