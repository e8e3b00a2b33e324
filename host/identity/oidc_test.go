package identity

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// idp is a small OpenID provider on loopback with one ES256 key.
type idp struct {
	*httptest.Server
	mu      sync.Mutex // guards kid and key
	kid     string
	key     *ecdsa.PrivateKey
	keysAt  atomic.Value    // another jwks_uri
	rsa     *rsa.PrivateKey // kid r1, or nil
	slow    atomic.Int64    // nanoseconds before each answer
	fetched atomic.Int64
	down    atomic.Bool
}

var (
	opsAudience = []string{"https://ops.example/mcp"}
	aAudience   = []string{"https://a/mcp"}
)

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func newIDP(t *testing.T) *idp {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &idp{kid: "k1", key: key}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(time.Duration(p.slow.Load())):
		case <-r.Context().Done():
			return
		}
		if p.down.Load() {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		var body any
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			at, _ := p.keysAt.Load().(string)
			body = map[string]any{"issuer": p.URL,
				"jwks_uri":                              cmp.Or(at, p.URL+"/keys"),
				"authorization_endpoint":                p.URL + "/a",
				"token_endpoint":                        p.URL + "/t",
				"id_token_signing_alg_values_supported": []string{"ES256", "HS256", "none"}}
		case "/keys":
			p.fetched.Add(1)
			kid, key := p.current()
			raw, err := key.PublicKey.Bytes()
			if err != nil {
				http.Error(w, err.Error(), 500)
				return
			}
			keys := []any{map[string]any{"kty": "EC", "crv": "P-256", "kid": kid, "alg": "ES256",
				"use": "sig", "x": b64(raw[1:33]), "y": b64(raw[33:])}}
			if p.rsa != nil {
				keys = append(keys, map[string]any{"kty": "RSA", "kid": "r1", "alg": "RS256",
					"use": "sig", "n": b64(p.rsa.N.Bytes()), "e": "AQAB"})
			}
			body = map[string]any{"keys": keys}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *idp) current() (string, *ecdsa.PrivateKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kid, p.key
}

func (p *idp) rotate(kid string, key *ecdsa.PrivateKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kid, p.key = kid, key
}

func (p *idp) token(t *testing.T, header, claims map[string]any) string {
	t.Helper()
	h := map[string]any{"alg": "ES256", "kid": "k1", "typ": "at+jwt"}
	c := map[string]any{"iss": p.URL, "aud": "https://ops.example/mcp", "sub": "carla",
		"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
		"roles": []string{"reader"}, "scope": "caponier:read other"}
	maps.Copy(h, header)
	maps.Copy(c, claims)
	head, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return p.sign(t, h["alg"], head, body)
}

func (p *idp) sign(t *testing.T, alg any, head, body []byte) string {
	t.Helper()
	signed := b64(head) + "." + b64(body)
	sum := sha256.Sum256([]byte(signed))
	switch alg {
	case "RS256":
		sig, err := p.rsa.Sign(rand.Reader, sum[:], crypto.SHA256)
		if err != nil {
			t.Fatal(err)
		}
		return signed + "." + b64(sig)
	case "none":
		return signed + "."
	case "HS256": // with the public key as the secret, the classic confusion
		raw, err := p.key.PublicKey.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		mac := hmac.New(sha256.New, raw)
		mac.Write([]byte(signed))
		return signed + "." + b64(mac.Sum(nil))
	}
	der, err := p.key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + b64(fixed(der))
}

// fixed turns an ASN.1 signature into JWS's two numbers of 32 bytes.
func fixed(der []byte) []byte {
	out := make([]byte, 64)
	at := 2
	for i := range 2 {
		n := int(der[at+1])
		num := der[at+2 : at+2+n]
		at += 2 + n
		for len(num) > 32 {
			num = num[1:]
		}
		copy(out[32*(i+1)-len(num):], num)
	}
	return out
}

func TestTokensOfAProvider(t *testing.T) {
	p := newIDP(t)
	o := Options{
		OIDC: OIDC{Issuer: p.URL, Audience: opsAudience, RolesClaim: "roles",
			Scopes: []string{"caponier:read"}},
		Log: quiet,
	}
	v, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if !v.Authenticates() {
		t.Error("a provider proves who is calling")
	}
	for i, c := range []struct {
		name           string
		header, claims m
		code           int
	}{
		{"a good one", nil, nil, 200},
		{"among other audiences", nil, m{"aud": []string{"x", "https://ops.example/mcp"}}, 200},
		{"plain JWT type", m{"typ": "JWT"}, nil, 200},
		{"expired", nil, m{"exp": time.Now().Add(-time.Second).Unix()}, 401},
		{"without an end", nil, m{"exp": nil}, 401},
		{"not yet valid", nil, m{"nbf": time.Now().Add(time.Hour).Unix()}, 401},
		{"another audience", nil, m{"aud": "https://ops.example"}, 401},
		{"no audience", nil, m{"aud": nil}, 401},
		{"another issuer", nil, m{"iss": "https://evil.example"}, 401},
		{"issuer with a slash more", nil, m{"iss": p.URL + "/"}, 401},
		{"unsigned", m{"alg": "none"}, nil, 401},
		{"signed with the public key", m{"alg": "HS256"}, nil, 401},
		{"another algorithm's name", m{"alg": "ES384"}, nil, 401},
		{"an unknown key", m{"kid": "k2"}, nil, 401},
		{"a key of its own", m{"jwk": m{"kty": "EC"}, "kid": "k3"}, nil, 401},
		{"critical extension", m{"crit": []string{"b64"}}, nil, 401},
		{"another type", m{"typ": "logout+jwt"}, nil, 401},
		{"no subject", nil, m{"sub": nil}, 401},
		{"subject that is no id", nil, m{"sub": "Carla <root>"}, 401},
		{"no role", nil, m{"roles": []string{}}, 401},
		{"roles that are none", nil, m{"roles": []string{"*", "A B"}}, 401},
		{"without the scope", nil, m{"scope": "caponier:write"}, 403},
		{"scopes as a list", nil, m{"scope": nil, "scp": []string{"caponier:read"}}, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, who, h := ask(v, fmt.Sprintf("203.0.113.%d:1", i+1),
				"Bearer "+p.token(t, c.header, c.claims))
			if code != c.code ||
				code == 200 &&
					(who.ID != "carla" || who.Auth != "oidc" ||
						!reflect.DeepEqual(who.Roles, []string{"reader"})) {
				t.Errorf("got %d %+v, want %d", code, who, c.code)
			}
			if got := h.Get("WWW-Authenticate"); code != 200 &&
				(!strings.Contains(got,
					`resource_metadata="https://ops.example/.well-known/oauth-protected-resource/mcp"`) ||
					!strings.Contains(got, `scope="caponier:read"`) ||
					strings.Contains(got, "insufficient_scope") != (code == 403)) {
				t.Errorf("challenge %s", got)
			}
		})
	}
	good := p.token(t, nil, nil)
	parts := strings.Split(good, ".")
	for name, raw := range map[string]string{"two parts": parts[0] + "." + parts[1],
		"another body": parts[0] + "." + strings.Split(p.token(t, nil, m{"sub": "root"}), ".")[1] +
			"." + parts[2],
		"17 KiB": "a." + strings.Repeat("b", 17<<10) +
			".c", "nothing": "..", "a token of ours where there are none": tokenMark +
			strings.Repeat("a", 43)} {
		if code, _, _ := ask(v, "192.0.2."+fmt.Sprint(len(name))+":1", "Bearer "+raw); code != 401 {
			t.Errorf("%s: %d", name, code)
		}
	}
	for i := range 50 {
		ask(v, fmt.Sprintf("198.51.100.%d:1", i),
			"Bearer "+p.token(t, m{"kid": fmt.Sprint("made-up", i)}, nil))
	}
	if n := p.fetched.Load(); n > 5 {
		t.Errorf("50 made-up keys had the provider asked %d times", n)
	}
	if code, _, _ := ask(v, "192.0.2.99:1", "Bearer "+good); code != 200 {
		t.Errorf("a good token after all that: %d", code)
	}
}

func TestAProviderThatIsDownIsReportedAndTriedAgain(t *testing.T) {
	p := newIDP(t)
	p.down.Store(true)
	v, err := New(
		Options{OIDC: OIDC{Issuer: p.URL, Audience: opsAudience}, Log: quiet})
	if err != nil {
		t.Fatalf("the host must start without it: %v", err)
	}
	if code, _, _ := ask(v, "192.0.2.1:1", "Bearer "+p.token(t, nil, nil)); code != 503 {
		t.Errorf("down: %d", code)
	}
	p.down.Store(false)
	if code, who, _ := ask(v, "192.0.2.1:1", "Bearer "+p.token(t, nil, nil)); code != 200 ||
		who.ID != "carla" ||
		len(who.Roles) != 0 {
		t.Errorf("up again: %d %+v", code, who)
	}
}

func TestMetadataNamesTheProvider(t *testing.T) {
	v, err := New(
		Options{
			OIDC: OIDC{Issuer: "https://id.example", Audience: opsAudience,
				Scopes: []string{"caponier:read"}},
			Log: quiet,
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	paths, h := v.Metadata()
	if !reflect.DeepEqual(paths, []string{wellKnown, wellKnown + "/mcp"}) {
		t.Errorf("paths %v", paths)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", wellKnown, nil))
	if want := `{"authorization_servers":["https://id.example"],"bearer_methods_supported":["header"],"resource":"https://ops.example/mcp","resource_name":"Caponier","scopes_supported":["caponier:read"]}`; w.Body.String() != want {
		t.Errorf("got %s", w.Body)
	}
}

func TestOIDCOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]OIDC{
		"plain http":         {Issuer: "http://id.example", Audience: aAudience},
		"audience is no URL": {Issuer: "https://id.example", Audience: []string{"api://x"}},
		"spaces in audience": {Issuer: "https://id.example", Audience: []string{"a b"},
			Resource: "https://a/mcp"},
		"resource is no URL": {Issuer: "https://id.example", Audience: []string{"x"}, Resource: "x"},
		"no audience":        {Issuer: "https://id.example"},
		"audience alone":     {Audience: aAudience},
		"query":              {Issuer: "https://id.example/?x=1", Audience: aAudience},
		"symmetric signature": {Issuer: "https://id.example", Audience: aAudience,
			Algorithms: []string{"HS256"}},
		"none": {Issuer: "https://id.example", Audience: aAudience,
			Algorithms: []string{"none"}},
	} {
		if _, err := New(Options{OIDC: o, Log: quiet}); err == nil ||
			!strings.Contains(err.Error(), "identity.oidc.") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Two readers of a token must not see two values in it, also when the provider signed it so.
func TestAJWTHasOneReading(t *testing.T) {
	p := newIDP(t)
	v, err := New(Options{OIDC: OIDC{Issuer: p.URL, Audience: []string{"a"},
		Resource: "https://a/mcp"}, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	head := `{"alg":"ES256","kid":"k1"}`
	body := fmt.Sprintf(`{"iss":%q,"aud":"a","sub":"carla","exp":%d}`, p.URL,
		time.Now().Add(time.Hour).Unix())
	for name, c := range map[string]struct {
		head, body string
		code       int
	}{
		"as it is":               {head, body, 200},
		"a claim twice":          {head, strings.Replace(body, "{", `{"sub":"root",`, 1), 401},
		"a claim in two cases":   {head, strings.Replace(body, "{", `{"Sub":"root",`, 1), 401},
		"a header key twice":     {strings.Replace(head, "{", `{"alg":"none",`, 1), body, 401},
		"two values":             {head, body + "{}", 401},
		"a list":                 {head, "[" + body + "]", 401},
		"crit that is empty":     {strings.Replace(head, "{", `{"crit":[],`, 1), body, 401},
		"a type that is no text": {strings.Replace(head, "{", `{"typ":["jwt"],`, 1), body, 200},
	} {
		t.Run(name, func(t *testing.T) {
			token := p.sign(t, "ES256", []byte(c.head), []byte(c.body))
			code, who, _ := ask(v, "192.0.2.1:1", "Bearer "+token)
			if code == 429 {
				code = 401
			}
			if code != c.code || code == 200 && who.ID != "carla" {
				t.Errorf("%d %+v", code, who)
			}
		})
	}
}

func TestShortRSAKeysAreRefused(t *testing.T) {
	t.Setenv("GODEBUG", "rsa1024min=0")
	for bits, want := range map[int]int{1024: 401, 2048: 200} {
		p := newIDP(t)
		var err error
		if p.rsa, err = rsa.GenerateKey(rand.Reader, bits); err != nil {
			t.Fatal(err)
		}
		v, err := New(Options{OIDC: OIDC{Issuer: p.URL, Audience: opsAudience},
			Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		token := p.token(t, map[string]any{"alg": "RS256", "kid": "r1"}, nil)
		if code, _, _ := ask(v, "192.0.2.1:1", "Bearer "+token); code != want {
			t.Errorf("a key of %d bits: %d, want %d", bits, code, want)
		}
	}
}

func TestRolesInNestedClaims(t *testing.T) {
	p := newIDP(t)
	for _, c := range []struct {
		claim  string
		claims m
		roles  []string
	}{
		{"realm_access.roles", m{"realm_access": m{"roles": []string{"viewer"}}},
			[]string{"viewer"}},
		{"a.b", m{"a.b": "operator", "a": m{"b": "viewer"}}, []string{"operator"}},
		{"https://x.example/roles", m{"https://x.example/roles": "viewer"}, []string{"viewer"}},
		{"realm_access.roles", m{"realm_access": "roles"}, nil},
		{"realm_access.roles", m{"realm_access": m{"roles": []any{"viewer", 1}}}, nil},
		{"absent", m{}, nil},
	} {
		v, err := New(Options{Log: quiet, OIDC: OIDC{Issuer: p.URL,
			Audience: opsAudience, RolesClaim: c.claim}})
		if err != nil {
			t.Fatal(err)
		}
		code, who, _ := ask(v, "192.0.2.1:1", "Bearer "+p.token(t, nil, c.claims))
		if (code == 200) != (c.roles != nil) || !reflect.DeepEqual(who.Roles, c.roles) {
			t.Errorf("%s in %v: %d %v", c.claim, c.claims, code, who.Roles)
		}
	}
}

func TestAProviderThatHangsIsReportedInTime(t *testing.T) {
	p := newIDP(t)
	p.slow.Store(int64(time.Minute))
	v, err := New(Options{OIDC: OIDC{Issuer: p.URL, Audience: opsAudience},
		Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if code, _, _ := ask(v, "192.0.2.1:1", "Bearer "+p.token(t, nil, nil)); code != 503 {
				t.Errorf("got %d", code)
			}
		})
	}
	wg.Wait()
	if took := time.Since(began); took > 10*providerTime {
		t.Errorf("20 callers at once waited %s", took)
	}
}
