// Package signintest is an OpenID provider for tests, which does what a test tells it to.
package signintest

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"
)

// ClientID and ClientSecret are those of the one client.
const (
	ClientID     = "caponier"
	ClientSecret = "a secret of thirty-two characters"
)

var key = sync.OnceValue(func() *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return k
})

// Provider is an OpenID provider. Set its hooks before it is used.
type Provider struct {
	Issuer string
	Doc    func(map[string]any)                          // changes how it describes itself
	Claims func(map[string]any)                          // changes what it signs
	Sign   func(claims map[string]any) string            // in place of RS256 with its key
	Serve  func(http.ResponseWriter, *http.Request) bool // true: it has answered
	NoPKCE bool                                          // it ignores challenges

	mu    sync.Mutex // guards the following
	codes map[string]url.Values
	Asked []url.Values // the forms that the token endpoint got
}

// New starts a provider on loopback, until the test ends.
func New(t testing.TB) *Provider {
	p := &Provider{codes: map[string]url.Values{}}
	s := httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(s.Close)
	p.Issuer = s.URL
	return p
}

// Agree is what a browser brings back from an authorization request, after subject agreed there.
func (p *Provider) Agree(t testing.TB, raw, subject string) url.Values {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	asked := u.Query()
	asked.Set("sub", subject)
	p.mu.Lock()
	defer p.mu.Unlock()
	code := rand.Text()
	p.codes[code] = asked
	return url.Values{"code": {code}, "state": {asked.Get("state")}, "iss": {p.Issuer}}
}

func (p *Provider) serve(w http.ResponseWriter, r *http.Request) {
	if p.Serve != nil && p.Serve(w, r) {
		return
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		doc := map[string]any{"issuer": p.Issuer, "authorization_endpoint": p.Issuer + "/auth",
			"token_endpoint": p.Issuer + "/token", "jwks_uri": p.Issuer + "/keys",
			"code_challenge_methods_supported":               []string{"S256"},
			"authorization_response_iss_parameter_supported": true}
		if p.Doc != nil {
			p.Doc(doc)
		}
		answer(w, http.StatusOK, doc)
	case "/keys":
		answer(w, http.StatusOK, map[string]any{"keys": []any{map[string]any{"kty": "RSA",
			"use": "sig", "alg": "RS256", "kid": "1", "n": encode(key().N.Bytes()),
			"e": encode(big.NewInt(int64(key().E)).Bytes())}}})
	case "/token":
		p.token(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	id, secret, ok := r.BasicAuth()
	given := r.PostFormValue("code")
	secret, err := url.QueryUnescape(secret)
	p.mu.Lock()
	asked := p.codes[given]
	delete(p.codes, given)
	p.Asked = append(p.Asked, r.PostForm)
	p.mu.Unlock()
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	switch {
	case !ok || err != nil || id != ClientID || secret != ClientSecret:
		answer(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	case asked == nil, asked.Get("redirect_uri") != r.PostFormValue("redirect_uri"),
		!p.NoPKCE && asked.Get("code_challenge") != encode(sum[:]):
		answer(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
		return
	}
	now := time.Now().Unix()
	claims := map[string]any{"iss": p.Issuer, "aud": ClientID, "sub": asked.Get("sub"),
		"iat": now, "exp": now + 300, "nonce": asked.Get("nonce")}
	if p.Claims != nil {
		p.Claims(claims)
	}
	sign := p.Sign
	if sign == nil {
		sign = RS256
	}
	answer(w, http.StatusOK, map[string]any{"access_token": "the access token",
		"token_type": "Bearer", "refresh_token": "the refresh token", "id_token": sign(claims)})
}

// RS256 signs claims with the provider's key.
func RS256(claims map[string]any) string {
	raw := Part(map[string]any{"alg": "RS256", "kid": "1"}) + "." + Part(claims)
	sum := sha256.Sum256([]byte(raw))
	sig, err := rsa.SignPKCS1v15(nil, key(), crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	return raw + "." + encode(sig)
}

// Part is a part of a JWT.
func Part(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return encode(b)
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
