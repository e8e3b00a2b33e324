package identity

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

type m = map[string]any

// judged asks with a token and returns the status, the caller, and why the log says it was refused.
func judged(t *testing.T, o OIDC, token string) (code int, id, why string) {
	t.Helper()
	var log bytes.Buffer
	v, err := New(Options{OIDC: o, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	code, who, _ := ask(v, "192.0.2.1:1", "Bearer "+token)
	for part := range strings.SplitSeq(token, ".") {
		if len(part) > 20 && strings.Contains(log.String(), part) {
			t.Errorf("a part of the token is in the log: %s", log.String())
		}
	}
	return code, who.ID, log.String()
}

// A token is refused for the one thing that is wrong with it, and the log says which.
func TestOnlyAccessTokensForThisHostAreAccepted(t *testing.T) {
	p := newIDP(t)
	o := OIDC{Issuer: p.URL, Audience: []string{"https://ops.example/mcp", "api://ops"},
		Resource: "https://ops.example/mcp"}
	narrow := o
	narrow.Clients = []string{"laptop", "ci"}
	soon, later := time.Now().Add(skew/2).Unix(), time.Now().Add(2*skew).Unix()
	for name, c := range map[string]struct {
		o      OIDC
		claims m
		code   int
		says   string
	}{
		"the first audience":        {o, nil, 200, ""},
		"the second":                {o, m{"aud": "api://ops"}, 200, ""},
		"among others":              {o, m{"aud": []any{"x", "api://ops"}}, 200, ""},
		"another resource":          {o, m{"aud": "https://ops.example/other"}, 401, "other"},
		"a longer one":              {o, m{"aud": "https://ops.example/mcp/"}, 401, "audience"},
		"another case":              {o, m{"aud": "API://ops"}, 401, "API://ops"},
		"two in one text":           {o, m{"aud": "x api://ops"}, 401, "audience"},
		"a list with a number":      {o, m{"aud": []any{"api://ops", 1}}, 401, "audience"},
		"an object":                 {o, m{"aud": m{"api://ops": true}}, 401, "audience"},
		"azp instead of aud":        {o, m{"aud": "x", "azp": "api://ops"}, 401, "audience"},
		"resource instead of aud":   {o, m{"aud": nil, "resource": "api://ops"}, 401, "audience"},
		"of a mixed up issuer":      {o, m{"iss": "https://evil.example"}, 401, "evil.example"},
		"issuer in another case":    {o, m{"iss": strings.ToUpper(p.URL)}, 401, "issuer"},
		"issuers as a list":         {o, m{"iss": []any{p.URL}}, 401, "issuer"},
		"a clock a little ahead":    {o, m{"iat": soon, "nbf": soon}, 200, ""},
		"nbf too far ahead":         {o, m{"nbf": later}, 401, "claim nbf"},
		"iat too far ahead":         {o, m{"iat": later}, 401, "claim iat"},
		"iat that is a text":        {o, m{"iat": "0"}, 401, "claim iat"},
		"expired by a second":       {o, m{"exp": time.Now().Unix() - 1}, 401, "expired"},
		"Dex's access token":        {o, m{"at_hash": "x"}, 200, ""},
		"an ID token of a code":     {o, m{"c_hash": "x"}, 401, "c_hash"},
		"Keycloak's ID token":       {o, m{"typ": "ID"}, 401, "typ"},
		"Keycloak's refresh token":  {o, m{"typ": "Refresh"}, 401, "typ"},
		"Keycloak's access token":   {o, m{"typ": "Bearer"}, 200, ""},
		"a use that is no text":     {o, m{"typ": []any{"Bearer"}}, 401, "typ"},
		"Cognito's ID token":        {o, m{"token_use": "id"}, 401, "token_use"},
		"a logout token":            {o, m{"events": m{}}, 401, "events"},
		"bound to a key":            {o, m{"cnf": m{"jkt": "x"}}, 401, "cnf"},
		"of any client":             {o, m{"azp": "evil"}, 200, ""},
		"of a listed client":        {narrow, m{"azp": "laptop"}, 200, ""},
		"by its other name":         {narrow, m{"client_id": "ci"}, 200, ""},
		"of another client":         {narrow, m{"azp": "evil"}, 401, "evil"},
		"of two, one of them other": {narrow, m{"azp": "ci", "client_id": "evil"}, 401, "evil"},
		"of a list of clients":      {narrow, m{"azp": []any{"ci"}}, 401, "client"},
		"of a client in capitals":   {narrow, m{"azp": "CI"}, 401, "CI"},
		"of no client":              {narrow, nil, 401, "names no client"},
		"of a null client":          {narrow, m{"azp": nil}, 401, "client"},
	} {
		if code, _, why := judged(t, c.o, p.token(t, nil, c.claims)); code != c.code ||
			!strings.Contains(why, c.says) {
			t.Errorf("%s: %d %s, want %d %s", name, code, why, c.code, c.says)
		}
	}
}

// A value of the id claim is a principal when the configuration has it to the letter.
func TestCallersAreMappedToTheLetter(t *testing.T) {
	p := newIDP(t)
	mapped := OIDC{Issuer: p.URL, Audience: opsAudience, Callers: []OIDCCaller{
		{"auth0|5f7c8ec7c33c6c004bbafe82", "dana"}, {"Dana@Example.org", "dana"},
		{"carla", "carla"}, {"210987654321098765", "robot"}}}
	for value, want := range map[any]string{
		"auth0|5f7c8ec7c33c6c004bbafe82": "dana", "Dana@Example.org": "dana", "carla": "carla",
		"210987654321098765": "robot",
	} {
		if code, id, why := judged(t, mapped, p.token(t, nil, m{"sub": value})); code != 200 ||
			id != want {
			t.Errorf("%v: %d %q %s", value, code, id, why)
		}
	}
	near := []any{"dana", "robot", "dana@example.org", "DANA@EXAMPLE.ORG", "AUTH0|5f7c",
		"auth0|5F7C8EC7C33C6C004BBAFE82", " carla", "carla ", "carla\x00", "carla\n", "Carla",
		"c\u0430rla", "c\u0061\u0301rla", "ca\u200brla", "\uff43arla", "carl\u00e0", "ca\u017fla",
		"", nil, 210987654321098765, []any{"carla"}, m{"carla": true}, true}
	for known := range map[string]bool{"carla": true, "Dana@Example.org": true} {
		for i := range known { // each letter in the other case, left out, or there twice
			near = append(near, known[:i]+string(known[i]^0x20)+known[i+1:],
				known[:i]+known[i+1:], known[:i]+known[i:i+1]+known[i:])
		}
	}
	for _, value := range near {
		code, id, why := judged(t, mapped, p.token(t, nil, m{"sub": value}))
		if code != 401 || !strings.Contains(why, "not in identity.oidc.callers") &&
			!strings.Contains(why, "JWT claims: /sub") && // what is no plain JSON
			!strings.Contains(why, "field idToken.sub of type string") {
			t.Errorf("%q is let in as %q: %d %s", value, id, code, why)
		}
	}
	// Without a table, what is no id of a principal is refused, and the log says what to do.
	plain := OIDC{Issuer: p.URL, Audience: opsAudience}
	for _, value := range []string{"auth0|5f7c", "Dana@Example.org", "c\u0430rla"} {
		if code, _, why := judged(t, plain, p.token(t, nil, m{"sub": value})); code != 401 ||
			!strings.Contains(why, "say in identity.oidc.callers who it is") {
			t.Errorf("%q: %d %s", value, code, why)
		}
	}
	plain.IDClaim = "ext.person.id"
	nested := m{"ext": m{"person": m{"id": "erin"}}}
	if code, id, why := judged(t, plain, p.token(t, nil, nested)); code != 200 || id != "erin" {
		t.Errorf("a path: %d %q %s", code, id, why)
	}
}

func TestTheOAuthTableIsChecked(t *testing.T) {
	good := OIDC{Issuer: "https://id.example", Audience: opsAudience}
	for says, change := range map[string]func(*OIDC){
		"resource: with several": func(o *OIDC) { o.Audience = []string{"a", "b"} },
		`audience: ""`:           func(o *OIDC) { o.Audience = append(opsAudience, "") },
		"callers: claim \"\"":    func(o *OIDC) { o.Callers = []OIDCCaller{{"", "a"}} },
		"is there twice": func(o *OIDC) {
			o.Callers = []OIDCCaller{{"A", "a"}, {"A", "b"}}
		},
		"claim \"c\u0430rla\"": func(o *OIDC) {
			o.Callers = []OIDCCaller{{"c\u0430rla", "a"}}
		},
		"principal \"Dana\"":         func(o *OIDC) { o.Callers = []OIDCCaller{{"A", "Dana"}} },
		"principal \"host\"":         func(o *OIDC) { o.Callers = []OIDCCaller{{"A", "host"}} },
		"clients: \"a b\"":           func(o *OIDC) { o.Clients = []string{"a b"} },
		"scopes: \"a\\\"b\"":         func(o *OIDC) { o.Scopes = []string{`a"b`} },
		"there is no identity.oidc.": func(o *OIDC) { o.Issuer = "" },
	} {
		o := good
		if change(&o); o.Resource == "" && len(o.Audience) > 1 && !strings.HasPrefix(says, "res") {
			o.Resource = "https://ops.example/mcp"
		}
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}

// A key that the provider withdrew is forgotten, a new one is found; while the provider is down the
// known keys serve for an hour, and then nobody is let in.
func TestKeysComeAndGo(t *testing.T) {
	p := newIDP(t)
	var ahead atomic.Int64
	v, err := New(Options{OIDC: OIDC{Issuer: p.URL, Audience: opsAudience}, Log: quiet,
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	token := func(kid string) string {
		return p.token(t, m{"kid": kid}, m{"exp": time.Now().Add(9 * time.Hour).Unix()})
	}
	n := 0
	want := func(what, token string, code int) {
		t.Helper()
		n++
		if got, _, _ := ask(v, fmt.Sprintf("192.0.2.%d:1", n), "Bearer "+token); got != code {
			t.Errorf("%s: %d, want %d", what, got, code)
		}
	}
	old := token("k1")
	want("before", old, 200)
	next, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p.rotate("k2", next)
	want("a key that is known", old, 200)
	ahead.Store(int64(freshKeys + time.Second))
	want("a key that was withdrawn", old, 401)
	want("the key that came", token("k2"), 200)
	p.down.Store(true)
	want("the provider is down, and the key is known", token("k2"), 200)
	want("the provider is down, and the key is not", token("k3"), 503)
	ahead.Store(int64(2*freshKeys + 2*time.Second))
	want("a while later", token("k2"), 200)
	ahead.Store(int64(freshKeys + staleKeys + 2*time.Second))
	want("after an hour", token("k2"), 503)
}

// Made-up key ids make nobody ask the provider more often than it allows, cost their sender its
// tries, and hide no new key.
func TestAFloodOfKeyIDs(t *testing.T) {
	p := newIDP(t)
	v, err := New(Options{OIDC: OIDC{Issuer: p.URL, Audience: opsAudience}, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	codes := map[int]int{}
	for i := range 60 {
		code, _, _ := ask(v, "198.51.100.1:1",
			"Bearer "+p.token(t, m{"kid": fmt.Sprint("made-up", i)}, nil))
		codes[code]++
	}
	if p.fetched.Load() > 5 || codes[429] < 50 || codes[200] > 0 {
		t.Errorf("asked %d times, answers %v", p.fetched.Load(), codes)
	}
	before := p.fetched.Load()
	for i := range 60 { // what is not for this host does not make it ask
		_, _, _ = ask(v, fmt.Sprintf("203.0.113.%d:1", i),
			"Bearer "+p.token(t, m{"kid": "x"}, m{"aud": "other"}))
	}
	if p.fetched.Load() != before {
		t.Error("tokens for another audience made the host ask for keys")
	}
	if code, _, _ := ask(v, "192.0.2.9:1", "Bearer "+p.token(t, nil, nil)); code != 200 {
		t.Errorf("a good token beside it: %d", code)
	}
}

// Clients are told the scopes to ask for, which may be named otherwise in tokens.
func TestScopesToAskFor(t *testing.T) {
	p := newIDP(t)
	v, err := New(Options{Log: quiet, OIDC: OIDC{Issuer: p.URL, Audience: opsAudience,
		Scopes: []string{"use"}, AskScopes: []string{"api://ops/use", "offline_access"}}})
	if err != nil {
		t.Fatal(err)
	}
	const told = `scope="api://ops/use offline_access"`
	code, _, h := ask(v, "192.0.2.1:1", "Bearer "+p.token(t, nil, m{"scope": "api://ops/use"}))
	if got := h.Get("WWW-Authenticate"); code != 403 ||
		!strings.Contains(got, `error="insufficient_scope"`) || !strings.Contains(got, told) {
		t.Errorf("%d %s", code, got)
	}
	if code, _, h := ask(v, "192.0.2.1:1", ""); code != 401 ||
		!strings.Contains(h.Get("WWW-Authenticate"), told) {
		t.Errorf("%d %v", code, h)
	}
	if code, _, _ := ask(v, "192.0.2.1:1",
		"Bearer "+p.token(t, nil, m{"scope": nil, "scp": "use"})); code != 200 {
		t.Errorf("a token with it: %d", code)
	}
}

// A provider whose keys could be changed on the way is not believed.
func TestKeysOverPlainHTTPAreNotFetched(t *testing.T) {
	p := newIDP(t)
	p.keysAt.Store("http://keys.example/keys")
	code, _, why := judged(t, OIDC{Issuer: p.URL, Audience: opsAudience}, p.token(t, nil, nil))
	if code != 503 || !strings.Contains(why, "not a plain https URL") {
		t.Errorf("%d %s", code, why)
	}
}
