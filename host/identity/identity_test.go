package identity

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func people() []Principal {
	return []Principal{{ID: "anna", Roles: []string{"operator", "reader"}}, {ID: "bert"}}
}

func TestOptionsAreRefusedWithTheirKey(t *testing.T) {
	for _, c := range []struct {
		name, says string
		o          Options
	}{
		{"id in capitals", "identity.principals", Options{Principals: []Principal{{ID: "Anna"}}}},
		{"empty id", "identity.principals", Options{Principals: []Principal{{}}}},
		{"id twice", "twice", Options{Principals: []Principal{{ID: "a"}, {ID: "a"}}}},
		{"the host's own id", "the host itself", Options{Principals: []Principal{{ID: "host"}}}},
		{"http for the host", "identity.http", Options{HTTP: "host"}},
		{"odd role", "role", Options{Principals: []Principal{{ID: "a", Roles: []string{"a b"}}}}},
		{"http for an unknown principal", "identity.http", Options{HTTP: "x"}},
		{"open door beside tokens", "would be let in",
			Options{Principals: people(), HTTP: "anna", Tokens: "t"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := New(c.o); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The id of the host itself comes in no way: neither by a token, made or written into the file by
// hand, nor by an identity provider's word.
func TestNoCallerIsTheHost(t *testing.T) {
	v, tokens, _ := withTokens(t)
	if _, _, err := tokens.New(reserved, nil, "", time.Hour); err == nil {
		t.Error("a token of the host was made")
	}
	secret, kept, err := tokens.New("anna", nil, "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := tokens.change("", func(all []Token) ([]Token, error) {
		all[find(all, kept.Prefix)].Principal = reserved
		return all, nil
	}); err != nil {
		t.Fatal(err)
	}
	if code, who, _ := ask(v, "192.0.2.1:1", "Bearer "+secret); code != 401 {
		t.Errorf("by an edited token: %d %v", code, who)
	}
	// as if Validate let it pass
	o := Options{Principals: []Principal{{ID: reserved}, {ID: "anna"}}}
	for _, auth := range []string{"token", "oidc"} {
		for _, roles := range [][]string{nil, {"operator"}} {
			if p, err := o.narrowed(reserved, auth, roles); err == nil || p.ID != "" {
				t.Errorf("by %s: %v %v", auth, p, err)
			}
		}
	}
}

// ask sends a request through the middleware and gives the status and who it was.
func ask(v *Verifier, from string, auth ...string) (int, terms.Principal, http.Header) {
	r := httptest.NewRequest("POST", "/mcp", nil)
	r.RemoteAddr = from
	for _, a := range auth {
		r.Header.Add("Authorization", a)
	}
	var who terms.Principal
	w := httptest.NewRecorder()
	v.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		who,
			_ = v.Principal(r.Context())
	})).
		ServeHTTP(w, r)
	return w.Code, who, w.Header()
}

func TestAConfiguredPrincipalCalls(t *testing.T) {
	v, err := New(Options{Principals: people(), HTTP: "anna", Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if code, who, _ := ask(v, "127.0.0.1:1"); code != 200 || who.ID != "anna" || v.Authenticates() {
		t.Errorf("%d %+v", code, who)
	}
	zero, err := New(Options{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if code, _, _ := ask(zero, "127.0.0.1:1"); code != 401 {
		t.Errorf("without any configuration: %d", code)
	}
}

// The roles of [[identity.principals]] narrow every way in: no way gives more roles than
// another. Policy takes no roles for "not narrowed", so a credential that is left without
// any is refused.
func TestRolesNarrowEveryWayIn(t *testing.T) {
	p := newIDP(t)
	both := []string{"operator", "viewer"}
	for _, c := range []struct {
		listed  bool
		roles   []string // of the entry
		claimed []string // by the credential
		want    []string // nil is refused
	}{
		{true, nil, nil, []string{}},
		{true, []string{"viewer"}, nil, []string{"viewer"}},
		{true, both, nil, both},
		{true, nil, []string{"viewer"}, []string{"viewer"}},
		{true, []string{"viewer"}, both, []string{"viewer"}},
		{true, []string{"viewer"}, []string{"operator"}, nil},
		{true, both, []string{"operator"}, []string{"operator"}},
		{false, nil, nil, []string{}},
		{false, nil, []string{"viewer"}, []string{"viewer"}},
	} {
		o := Options{Log: quiet}
		if c.listed {
			o.Principals = []Principal{{ID: "demo", Roles: c.roles}}
		}
		ways := map[string]terms.Principal{}
		if c.claimed == nil { // these have no credential that could name roles
			ways["stdio and CLI"] = o.Configured("demo")
			if c.listed {
				open := o
				open.HTTP = "demo"
				v, err := New(open)
				if err != nil {
					t.Fatal(err)
				}
				_, ways["HTTP without a token"], _ = ask(v, "127.0.0.1:1")
			}
		}
		o.Tokens = filepath.Join(t.TempDir(), "tokens")
		o.OIDC = OIDC{Issuer: p.URL, Audience: opsAudience}
		if c.claimed != nil {
			o.OIDC.RolesClaim = "groups"
		}
		v, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if c.listed {
			secret, _, err := (&Tokens{Path: o.Tokens}).New("demo", c.claimed, "", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			_, ways["token"], _ = ask(v, "192.0.2.1:1", "Bearer "+secret)
		}
		jwt := p.token(t, nil, map[string]any{"sub": "demo", "groups": c.claimed})
		_, ways["OIDC"], _ = ask(v, "192.0.2.2:1", "Bearer "+jwt)
		for way, who := range ways {
			if !reflect.DeepEqual(who.Roles, c.want) || c.want != nil && who.ID != "demo" {
				t.Errorf("entry %v %v, credential %v, over %s: %+v, want roles %v",
					c.listed, c.roles, c.claimed, way, who, c.want)
			}
		}
	}
}

// A call that runs asks again whether its caller's credential holds.
func TestCurrent(t *testing.T) {
	v, tokens, now := withTokens(t)
	during := func(auth string, do func(ctx context.Context)) {
		r := httptest.NewRequest("POST", "/mcp", nil)
		r.Header.Set("Authorization", auth)
		ran := false
		v.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ran = true
			do(r.Context())
		})).ServeHTTP(httptest.NewRecorder(), r)
		if !ran {
			t.Error("the caller was not let in")
		}
	}
	if err := v.Current(context.Background()); err == nil {
		t.Error("a caller whom the middleware did not see is current")
	}
	if err := v.Admitted(context.Background()); err == nil {
		t.Error("a caller whom the middleware did not see is admitted")
	}
	for name, c := range map[string]struct {
		change func(tok Token) error
		why    string // it is not current any more
	}{
		"nothing changes": {func(Token) error { return nil }, ""},
		"it expires":      {func(Token) error { now.t = now.t.Add(2 * time.Hour); return nil }, ""},
		"it is revoked": {func(tok Token) error { return tokens.Revoke(tok.Prefix) },
			"was revoked"},
		"it is taken out": {func(Token) error {
			return tokens.change("", func([]Token) ([]Token, error) { return nil, nil })
		}, "unknown token"},
		"its roles are narrowed": {func(tok Token) error {
			return tokens.change("", func(all []Token) ([]Token, error) {
				all[len(all)-1].Roles = []string{"reader"}
				return all, nil
			})
		}, "was changed"},
		"the file is not to be trusted": {func(Token) error {
			return os.Chmod(tokens.Path, 0o666)
		}, "cannot be read"},
		"the file is gone": {func(Token) error { return os.Remove(tokens.Path) }, "unknown token"},
	} {
		t.Run(name, func(t *testing.T) {
			os.Remove(tokens.Path)
			secret, kept, err := tokens.New("anna", nil, "", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			during("Bearer "+secret, func(ctx context.Context) {
				if err := v.Current(ctx); err != nil {
					t.Errorf("at once: %v", err)
				}
				if err := c.change(kept); err != nil {
					t.Fatal(err)
				}
				stays := name == "nothing changes" || name == "its roles are narrowed"
				if err := v.Admitted(ctx); (err == nil) != stays {
					t.Errorf("admitted as a new request: %v", err)
				}
				err := v.Current(ctx)
				if (err == nil) != (c.why == "") || err != nil &&
					!strings.Contains(err.Error(), c.why) {
					t.Errorf("got %v, want %q", err, c.why)
				}
			})
		})
	}
}

type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func withTokens(t *testing.T) (*Verifier, *Tokens, *clock) {
	t.Helper()
	c := &clock{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	path := filepath.Join(t.TempDir(), "state", "tokens")
	v, err := New(Options{Principals: people(), Tokens: path, Log: quiet, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	return v, &Tokens{Path: path, Now: c.now}, c
}

func TestATokenGivesItsRightsAndNoMore(t *testing.T) {
	v, tokens, now := withTokens(t)
	if !v.Authenticates() {
		t.Error("tokens prove who is calling")
	}
	full, _, err := tokens.New("anna", nil, "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	narrow, _, err := tokens.New("anna", []string{"reader", "admin"}, "192.0.2.0/24", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	alien, _, err := tokens.New("anna", []string{"admin"}, "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	open, _, err := tokens.New("bert", []string{"reader"}, "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ghost, _, err := tokens.New("ghost", nil, "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, from string
		auth       []string
		code       int
		roles      []string
	}{
		{"the whole token", "198.51.100.1:5", []string{"Bearer " + full}, 200,
			[]string{"operator", "reader"}},
		{"scheme in lower case", "198.51.100.1:5", []string{"bearer " + full}, 200,
			[]string{"operator", "reader"}},
		{"roles only of the principal's", "192.0.2.9:5", []string{"Bearer " + narrow}, 200,
			[]string{"reader"}},
		{"its network, in IPv6's clothes", "[::ffff:192.0.2.9]:5", []string{"Bearer " + narrow},
			200, []string{"reader"}},
		{"roles of which none is the principal's", "198.51.100.1:5", []string{"Bearer " + alien},
			401, nil},
		{"roles of a principal whose roles only policy knows", "198.51.100.1:5",
			[]string{"Bearer " + open}, 200, []string{"reader"}},
		{"another network", "198.51.100.1:5", []string{"Bearer " + narrow}, 401, nil},
		{"no address", "@", []string{"Bearer " + narrow}, 401, nil},
		{"a principal that is gone", "203.0.113.1:5", []string{"Bearer " + ghost}, 401, nil},
		{"nothing", "203.0.113.2:5", nil, 401, nil},
		{"two headers", "203.0.113.3:5", []string{"Bearer " + full, "Bearer " + full}, 401, nil},
		{"its prefix", "203.0.113.4:5", []string{"Bearer " + full[:prefixLength]}, 401, nil},
		{"its digest", "203.0.113.5:5", []string{"Bearer " + digest(full)}, 401, nil},
		{"another secret with its prefix", "203.0.113.6:5",
			[]string{"Bearer " + full[:len(full)-1] + "x"}, 401, nil},
		{"spaces around", "203.0.113.7:5", []string{"Bearer  " + full}, 401, nil},
		{"Basic", "203.0.113.8:5", []string{"Basic " + full}, 401, nil},
		{"empty", "203.0.113.9:5", []string{"Bearer "}, 401, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, who, h := ask(v, c.from, c.auth...)
			if code != c.code || !reflect.DeepEqual(who.Roles, c.roles) ||
				code == 200 && who.Auth != "token" {
				t.Errorf("got %d, %+v", code, who)
			}
			if got := h.Get("WWW-Authenticate"); code == 401 &&
				(!strings.HasPrefix(got, "Bearer realm=") ||
					strings.Contains(got, "invalid_token") != (len(c.auth) > 0)) {
				t.Errorf("challenge %q", got)
			}
		})
	}
	list, err := tokens.List()
	if err != nil || len(list) != 5 || list[0].LastUsed.IsZero() {
		t.Errorf("list: %v %+v", err, list)
	}
	if err := tokens.Revoke(list[0].Prefix); err != nil {
		t.Fatal(err)
	}
	if code, _, _ := ask(v, "198.51.100.1:5", "Bearer "+full); code != 401 {
		t.Errorf("right after it was revoked: %d", code)
	}
	now.t = now.t.Add(time.Hour)
	if code, _, _ := ask(v, "192.0.2.9:5", "Bearer "+narrow); code != 401 {
		t.Errorf("at the moment that it expires: %d", code)
	}
	if err := tokens.Revoke("cap_nothing"); err == nil ||
		!strings.Contains(err.Error(), "token list") {
		t.Errorf("revoking what is not there: %v", err)
	}
}

func TestTheSecretIsNotStored(t *testing.T) {
	_, tokens, _ := withTokens(t)
	secret, _, err := tokens.New("anna", nil, "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(tokens.Path)
	if err != nil || strings.Contains(string(data), secret[prefixLength:]) {
		t.Errorf("%v: the file holds the secret", err)
	}
	info, err := os.Stat(tokens.Path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v: mode %v", err, info.Mode())
	}
}

func TestATokenFileOfOthersLetsNoCallerIn(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"writable by others": func(p string) error { return os.Chmod(p, 0o622) },
		"in a directory that others may write to": func(p string) error {
			return os.Chmod(filepath.Dir(p), 0o777)
		},
		"of another user": func(p string) error {
			if err := os.Chown(p, 12345, 12345); err != nil { // only root may
				return os.Chmod(p, 0o644)
			}
			return nil
		},
		"a FIFO": func(p string) error {
			return errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o600))
		},
		"readable by others": func(p string) error { return os.Chmod(p, 0o644) },
		"half a line":        func(p string) error { return appendTo(p, `{"prefix":"cap_`) },
		"an unknown field":   func(p string) error { return appendTo(p, `{"admin":true}`+"\n") },
		"a directory":        func(p string) error { return os.Mkdir(p+".d", 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			v, tokens, _ := withTokens(t)
			secret, _, err := tokens.New("anna", nil, "", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if code, _, _ := ask(v, "192.0.2.1:1", "Bearer "+secret); code != 200 {
				t.Fatalf("before: %d", code)
			}
			if err := spoil(tokens.Path); err != nil {
				t.Fatal(err)
			}
			if name == "a directory" {
				if err := os.Remove(tokens.Path); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(tokens.Path+".d", tokens.Path); err != nil {
					t.Fatal(err)
				}
			}
			if code, _, _ := ask(v, "192.0.2.1:1", "Bearer "+secret); code != 503 {
				t.Errorf("afterwards: %d", code)
			}
			if _, err := New(Options{Principals: people(), Tokens: tokens.Path,
				Log: quiet}); err == nil ||
				!strings.Contains(err.Error(), filepath.Dir(tokens.Path)) {
				t.Errorf("a new host starts with it: %v", err)
			}
		})
	}
}

func appendTo(path, s string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(s)
	return err
}

func TestGuessersAreSlowedAndLockNoOtherCallerOut(t *testing.T) {
	v, tokens, now := withTokens(t)
	secret, _, err := tokens.New("anna", nil, "", 10*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	wrong := "Bearer " + secret[:len(secret)-2] + "xx"
	for i := range maxFailures + 2 {
		want := 401
		if i >= maxFailures {
			want = 429
		}
		if code, _, h := ask(v, "[2001:db8::1]:1", wrong); code != want ||
			want == 429 && h.Get("Retry-After") == "" {
			t.Errorf("failure %d: %d", i+1, code)
		}
	}
	if code, _, _ := ask(v, "[2001:db8::ffff]:1", wrong); code != 429 {
		t.Errorf("the same network with another address: %d", code)
	}
	if code, _, _ := ask(v, "[2001:db8:1::1]:1", wrong); code != 401 {
		t.Errorf("another network: %d", code)
	}
	if code, _, _ := ask(v, "[2001:db8::1]:1", "Bearer "+secret); code != 200 {
		t.Errorf("a good token from the same address: %d", code)
	}
	now.t = now.t.Add(time.Minute)
	if code, _, _ := ask(v, "[2001:db8::1]:1", wrong); code != 401 {
		t.Errorf("a minute later: %d", code)
	}
}

func TestTokensOfManyProcessesAreAllKept(t *testing.T) {
	_, tokens, _ := withTokens(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			own := &Tokens{Path: tokens.Path, Now: tokens.Now}
			_, kept, err := own.New("anna", nil, "", time.Hour)
			if err == nil {
				err = own.Revoke(kept.Prefix)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list, err := tokens.List()
	if err != nil || len(list) != 20 {
		t.Fatalf("%d kept of 20: %v", len(list), err)
	}
	for _, tok := range list {
		if tok.Revoked.IsZero() {
			t.Errorf("%s lost its revocation", tok.Prefix)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(tokens.Path), ".new-*")); len(
		left,
	) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTokensWithWrongOptionsAreNotMade(t *testing.T) {
	_, tokens, _ := withTokens(t)
	for name, try := range map[string]func() error{
		"for ever": func() error {
			_, _, err := tokens.New("anna", nil, "",
				2*maxLifetime)
			return err
		},
		"for no time": func() error { _, _, err := tokens.New("anna", nil, "", 0); return err },
		"odd network": func() error {
			_, _, err := tokens.New("anna", nil, "192.0.2.0",
				time.Hour)
			return err
		},
		"odd principal": func() error {
			_, _, err := tokens.New("An na", nil, "",
				time.Hour)
			return err
		},
	} {
		if try() == nil {
			t.Errorf("%s: made", name)
		}
	}
}

func FuzzTokenFile(f *testing.F) {
	f.Add(
		[]byte(
			`{"prefix":"cap_abcdefgh","sha256":"` + strings.Repeat(
				"0",
				64,
			) +
				`","principal":"a","created":"2026-01-02T03:04:05Z",` +
				`"expires":"2026-01-02T03:04:05Z"}` + "\n",
		),
	)
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := parseTokens(data)
		if err != nil {
			return
		}
		written, err := writeTokens(all)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseTokens(written)
		if err != nil || len(again) != len(all) {
			t.Fatalf("%v: %d tokens became %d", err, len(all), len(again))
		}
		rewritten, err := writeTokens(again)
		if err != nil || string(rewritten) != string(written) {
			t.Fatalf("not the same again: %v\n%s\n%s", err, written, rewritten)
		}
	})
}

func BenchmarkToken(b *testing.B) {
	path := filepath.Join(b.TempDir(), "tokens")
	tokens := &Tokens{Path: path}
	var secret string
	for range 100 {
		var err error
		if secret, _, err = tokens.New("anna", nil, "", time.Hour); err != nil {
			b.Fatal(err)
		}
	}
	v, err := New(Options{Principals: people(), Tokens: path, Log: quiet})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if code, _, _ := ask(v, "192.0.2.1:1", "Bearer "+secret); code != 200 {
			b.Fatal(code)
		}
	}
}
