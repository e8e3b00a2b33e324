package signin_test

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/signin"
	"github.com/caponier-mcp/caponier/host/signin/signintest"
)

const redirect = "https://approve.example.org/approvals/oidc/callback"

func options(issuer string) signin.Options {
	return signin.Options{Issuer: issuer, ClientID: signintest.ClientID,
		ClientSecret: signintest.ClientSecret,
		People:       []signin.Person{{Claim: "auth0|ann", Name: "ann"}}}
}

// attempt is one, up to where the browser comes back.
func attempt(
	t *testing.T, idp *signintest.Provider, p *signin.Provider, change func(url.Values),
) (name string, asked url.Values, err error) {
	t.Helper()
	secret := rand.Text()
	to, err := p.URL(t.Context(), secret)
	if err != nil {
		return "", nil, err
	}
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	back := idp.Agree(t, to, "auth0|ann")
	if change != nil {
		change(back)
	}
	name, err = p.Name(t.Context(), secret, back)
	if err != nil && (name != "" || strings.Contains(err.Error(), back.Get("code")) &&
		back.Get("code") != "" || strings.Contains(err.Error(), secret)) {
		t.Errorf("%q, %v: a name, or a secret in the error", name, err)
	}
	return name, u.Query(), err
}

func TestAPersonIsSignedInWithPKCE(t *testing.T) {
	idp := signintest.New(t)
	p := signin.New(options(idp.Issuer), redirect, nil, nil)
	seen := map[string]bool{}
	for range 3 {
		name, asked, err := attempt(t, idp, p, nil)
		if err != nil || name != "ann" {
			t.Fatal(name, err)
		}
		for k, want := range map[string]string{"response_type": "code", "scope": "openid",
			"client_id": signintest.ClientID, "redirect_uri": redirect,
			"code_challenge_method": "S256"} {
			if asked.Get(k) != want {
				t.Errorf("%s is %q, want %q", k, asked.Get(k), want)
			}
		}
		for _, k := range []string{"state", "nonce", "code_challenge"} {
			if v := asked.Get(k); len(v) < 43 || seen[v] {
				t.Errorf("%s is %q", k, v)
			}
			seen[asked.Get(k)] = true
		}
	}
}

// What comes back from the provider's page may be anybody's.
func TestForgedResponsesOfTheProviderAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(url.Values)
		why    string
	}{
		"another state": {func(v url.Values) { v.Set("state", signin.State("x")) }, "the state"},
		"no state":      {func(v url.Values) { v.Del("state") }, "the state"},
		"two states":    {func(v url.Values) { v.Add("state", "x") }, "2 of state"},
		"two codes":     {func(v url.Values) { v.Add("code", "x") }, "2 of code"},
		"two issuers":   {func(v url.Values) { v.Add("iss", "x") }, "2 of iss"},
		"mix-up":        {func(v url.Values) { v.Set("iss", "https://evil.example") }, "of issuer"},
		"no issuer":     {func(v url.Values) { v.Del("iss") }, `of issuer ""`},
		"an empty one":  {func(v url.Values) { v.Set("iss", "") }, `of issuer ""`},
		"an error": {func(v url.Values) { v.Set("error", "access_denied") },
			"signed nobody in: \"access_denied\""},
		"no code":     {func(v url.Values) { v.Del("code") }, "signed nobody in"},
		"a made code": {func(v url.Values) { v.Set("code", "x") }, "refused the code: 400"},
	} {
		idp := signintest.New(t)
		p := signin.New(options(idp.Issuer), redirect, nil, nil)
		_, _, err := attempt(t, idp, p, c.change)
		if err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want %q", name, err, c.why)
		}
		if sent := len(idp.Asked); sent > 0 && name != "a made code" {
			t.Errorf("%s: the code was sent", name)
		}
	}
	// a provider that never promised iss may leave it out, and may not name another
	idp := signintest.New(t)
	idp.Doc = func(d map[string]any) { delete(d, "authorization_response_iss_parameter_supported") }
	p := signin.New(options(idp.Issuer), redirect, nil, nil)
	if name, _, err := attempt(t, idp, p, func(v url.Values) { v.Del("iss") }); name != "ann" {
		t.Error(err)
	}
	evil := func(v url.Values) { v.Set("iss", "https://evil.example") }
	if _, _, err := attempt(t, idp, p, evil); err == nil {
		t.Error("mix-up")
	}
}

// A code of another attempt is of no use, even one that was begun without PKCE (downgrade), and at
// a provider that ignores PKCE: then the nonce is another's.
func TestACodeOfAnotherAttemptIsRefused(t *testing.T) {
	for _, pkce := range []bool{true, false} {
		for name, change := range map[string]func(url.Values){
			"as it was": func(url.Values) {},
			"downgraded": func(v url.Values) {
				v.Del("code_challenge")
				v.Del("code_challenge_method")
			},
			"plain": func(v url.Values) { v.Set("code_challenge_method", "plain") },
			"without nonce": func(v url.Values) {
				v.Del("code_challenge")
				v.Del("nonce")
			},
		} {
			idp := signintest.New(t)
			idp.NoPKCE = !pkce
			p := signin.New(options(idp.Issuer), redirect, nil, nil)
			other, err := p.URL(t.Context(), rand.Text())
			if err != nil {
				t.Fatal(err)
			}
			u, err := url.Parse(other)
			if err != nil {
				t.Fatal(err)
			}
			q := u.Query()
			change(q)
			u.RawQuery = q.Encode()
			injected := idp.Agree(t, u.String(), "auth0|ann").Get("code")
			_, _, err = attempt(t, idp, p, func(v url.Values) { v.Set("code", injected) })
			want := "refused the code: 400 \"invalid_grant\""
			if !pkce {
				want = "nonce of another attempt"
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("pkce %t, %s: %v", pkce, name, err)
			}
		}
	}
}

func TestIDTokensThatAreNotForThisHostAreRefused(t *testing.T) {
	now := time.Now().Unix()
	set := func(k string, v any) func(map[string]any) {
		return func(c map[string]any) { c[k] = v }
	}
	for name, c := range map[string]struct {
		change func(map[string]any)
		why    string
	}{
		"another issuer":   {set("iss", "https://evil.example"), "different provider"},
		"another audience": {set("aud", "other"), "expected audience"},
		"no audience":      {set("aud", nil), "expected audience"},
		"two audiences":    {set("aud", []string{"caponier", "other"}), "(azp)"},
		"another azp":      {set("azp", "other"), "client \"other\" (azp)"},
		"expired":          {set("exp", now-1), "expired"},
		"no end":           {func(c map[string]any) { delete(c, "exp") }, "expired"},
		"of the future":    {set("iat", now+120), "the ID token is of"},
		"not yet":          {set("nbf", now+600), "not before"},
		"no nonce":         {set("nonce", nil), "nonce"},
		"nonce as list":    {set("nonce", []string{"x"}), "claims"},
		"another person":   {set("sub", "auth0|bob"), "not in approval.oidc.people"},
		"other case":       {set("sub", "auth0|Ann"), "not in approval.oidc.people"},
		"lookalike":        {set("sub", "auth0|аnn"), "not in approval.oidc.people"},
		"with a space":     {set("sub", "auth0|ann "), "not in approval.oidc.people"},
		"no person":        {set("sub", ""), "not in approval.oidc.people"},
	} {
		idp := signintest.New(t)
		idp.Claims = c.change
		p := signin.New(options(idp.Issuer), redirect, nil, nil)
		_, _, err := attempt(t, idp, p, nil)
		if err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want %q", name, err, c.why)
		}
		if strings.Contains(c.why, "people") != errors.Is(err, signin.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	sig := func(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
	for name, sign := range map[string]func(map[string]any) string{
		"none": func(c map[string]any) string {
			return signintest.Part(map[string]any{"alg": "none"}) + "." + signintest.Part(c) + "."
		},
		"HS256 with the client's secret": func(c map[string]any) string {
			raw := signintest.Part(map[string]any{"alg": "HS256"}) + "." + signintest.Part(c)
			m := hmac.New(sha256.New, []byte(signintest.ClientSecret))
			m.Write([]byte(raw))
			return raw + "." + sig(m.Sum(nil))
		},
		"another signature": func(c map[string]any) string {
			raw, _, _ := strings.Cut(signintest.RS256(c), ".")
			return raw + "." + signintest.Part(c) + "." + sig(make([]byte, 256))
		},
		"nothing": func(map[string]any) string { return "" },
	} {
		idp := signintest.New(t)
		idp.Sign = sign
		_, _, err := attempt(t, idp, signin.New(options(idp.Issuer), redirect, nil, nil), nil)
		if err == nil || !strings.HasPrefix(err.Error(), "the ID token: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOnlyAVerifiedEmailNamesAPerson(t *testing.T) {
	for verified, want := range map[any]string{true: "ann", false: "", nil: "", "true": ""} {
		idp := signintest.New(t)
		idp.Claims = func(c map[string]any) {
			c["email"], c["email_verified"] = "ann@example.org", verified
		}
		o := options(idp.Issuer)
		o.Claim, o.People = "email", []signin.Person{{Claim: "ann@example.org", Name: "ann"}}
		if name, _, err := attempt(t, idp, signin.New(o, redirect, nil, nil), nil); name != want {
			t.Errorf("%v: %q %v", verified, name, err)
		}
	}
}

func TestAnUnreachableOrLyingProviderIsReported(t *testing.T) {
	set := func(k string, v any) func(map[string]any) {
		return func(d map[string]any) { d[k] = v }
	}
	for name, doc := range map[string]func(map[string]any){
		"another issuer":     set("issuer", "https://evil.example"),
		"PKCE plain alone":   set("code_challenge_methods_supported", []string{"plain"}),
		"keys over http":     set("jwks_uri", "http://idp.example.org/keys"),
		"tokens over http":   set("token_endpoint", "http://idp.example.org/token"),
		"a page over http":   set("authorization_endpoint", "http://idp.example.org/auth"),
		"a script as a page": set("authorization_endpoint", "javascript://x/%0aalert(1)"),
		"no page":            set("authorization_endpoint", ""),
	} {
		idp := signintest.New(t)
		idp.Doc = doc
		_, err := signin.New(options(idp.Issuer), redirect, nil, nil).URL(t.Context(), "secret")
		if !errors.Is(err, signin.ErrProvider) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, serve := range map[string]http.HandlerFunc{
		"it answers 500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"it redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		},
		"it hangs": func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		},
		"it answers no JSON": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{") },
		"it answers no end":  endless,
		"it closes each time": func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		},
	} {
		for _, path := range []string{"/.well-known/openid-configuration", "/token"} {
			idp := signintest.New(t)
			idp.Serve = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == path {
					_ = r.ParseForm() // only then the server sees that the client left
					serve(w, r)
				}
				return r.URL.Path == path
			}
			began := time.Now()
			_, _, err := attempt(t, idp, signin.New(options(idp.Issuer), redirect, nil, nil), nil)
			if !errors.Is(err, signin.ErrProvider) || len(err.Error()) > 1000 ||
				time.Since(began) > 10*time.Second {
				t.Errorf("%s: %s after %s: %.2000v", path, name, time.Since(began), err)
			}
		}
	}
}

func endless(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		if _, err := w.Write(make([]byte, 1<<16)); err != nil {
			return
		}
	}
}

func TestAFloodOfAttemptsIsBounded(t *testing.T) {
	idp := signintest.New(t)
	p := signin.New(options(idp.Issuer), redirect, nil, nil)
	let := 0
	for range 200 {
		_, err := p.URL(t.Context(), rand.Text())
		if err == nil {
			let++
		} else if !errors.Is(err, signin.ErrOften) {
			t.Fatal(err)
		}
	}
	if let < 20 || let > 100 {
		t.Errorf("%d of 200 may begin", let)
	}
}

func TestTheOptionsAreChecked(t *testing.T) {
	good := options("https://idp.example.org")
	if err := good.Validate([]string{"ann"}); err != nil {
		t.Fatal(err)
	}
	if err := (signin.Options{}).Validate(nil); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*signin.Options){
		"issuer: \"http://":     func(o *signin.Options) { o.Issuer = "http://idp.example.org" },
		"issuer: \"https://x?":  func(o *signin.Options) { o.Issuer = "https://x?a=b" },
		"issuer: it is not set": func(o *signin.Options) { o.Issuer = "" },
		"client_id: ":           func(o *signin.Options) { o.ClientID = "" },
		"client_secret: ":       func(o *signin.Options) { o.ClientSecret = "short" },
		"claim: ":               func(o *signin.Options) { o.Claim = "a b" },
		"scopes: \"offline_access\"": func(o *signin.Options) {
			o.Scopes = []string{"offline_access"}
		},
		"people: it is empty": func(o *signin.Options) { o.People = nil },
		"people: claim \"auth0|аnn\"": func(o *signin.Options) {
			o.People = []signin.Person{{Claim: "auth0|аnn", Name: "ann"}}
		},
		"is there twice": func(o *signin.Options) { o.People = append(o.People, o.People[0]) },
		"\"Ann\" is not one of": func(o *signin.Options) {
			o.People = []signin.Person{{Claim: "a", Name: "Ann"}}
		},
		"\"*\" is not one of": func(o *signin.Options) {
			o.People = []signin.Person{{Claim: "a", Name: "*"}}
		},
	} {
		o := options("https://idp.example.org")
		change(&o)
		if err := o.Validate([]string{"ann"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
