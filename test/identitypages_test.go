package test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// issuer starts an OpenID provider for this test, at its own address, that signs any claims.
func issuer(t *testing.T) (url string, sign func(claims map[string]any) string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	b64 := base64.RawURLEncoding.EncodeToString
	var provider *httptest.Server
	provider = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var body any = map[string]any{"issuer": provider.URL, "jwks_uri": provider.URL + "/keys",
			"authorization_endpoint": provider.URL + "/a", "token_endpoint": provider.URL + "/t",
			"id_token_signing_alg_values_supported": []string{"RS256"}}
		if r.URL.Path == "/keys" {
			body = map[string]any{"keys": []any{map[string]any{"kty": "RSA", "kid": "1",
				"use": "sig",
				"alg": "RS256", "n": b64(key.N.Bytes()), "e": b64([]byte{1, 0, 1})}}}
		}
		_ = json.NewEncoder(w).Encode(body)
	}))
	t.Cleanup(provider.Close)
	return provider.URL, func(claims map[string]any) string {
		body, err := json.Marshal(claims)
		must(t, err)
		text := b64([]byte(`{"alg":"RS256","kid":"1","typ":"JWT"}`)) + "." + b64(body)
		sum := sha256.Sum256([]byte(text))
		sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
		must(t, err)
		return text + "." + b64(sig)
	}
}

// With the configuration of each page, a caller with the claims of that page may read. A token for
// another audience, of another issuer, or without the claim of the caller's id is refused.
func TestIdentityPagesLetTheirProvidersIn(t *testing.T) {
	pages, err := filepath.Glob("../docs/identity/*.md")
	must(t, err)
	if len(pages) != 9 {
		t.Fatalf("pages: %q", pages)
	}
	fence := func(text []byte, info string) string {
		m := regexp.MustCompile("(?s)```" + info + "\n(.*?)```").FindSubmatch(text)
		if m == nil {
			t.Fatalf("no fence %s", info)
		}
		return string(m[1])
	}
	for _, page := range pages {
		name := filepath.Base(page)
		if name == "README.md" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			text := read(t, page)
			at, sign := issuer(t)
			s := newSite(t)
			s.rewrite(t, "claimable_roles: []", "claimable_roles: [viewer]",
				"principals:\n", "principals:\n  \"123456789\": {auth: [oidc], roles: [viewer]}\n"+
					"  dana: {auth: [oidc], roles: [viewer]}\n")
			s.append(t, "\n%s", regexp.MustCompile(`issuer = ".*"`).ReplaceAllString(
				fence(text, "toml oidc.toml"), fmt.Sprintf("issuer = %q", at)))
			url := s.serveHTTP(t)
			for i, c := range []struct {
				claim  string
				change func(claims map[string]any)
				status int
			}{
				{"as the page has it", func(map[string]any) {}, 200},
				{"for another audience", func(c map[string]any) { c["aud"] = "other" }, 401},
				{"of another issuer", func(c map[string]any) { c["iss"] = "https://evil.example" },
					401},
				{"of nobody", func(c map[string]any) {
					for _, k := range []string{"sub", "oid", "uid", "repository_id"} {
						delete(c, k)
					}
				}, 401},
			} {
				var claims map[string]any
				must(t, json.Unmarshal([]byte(fence(text, "json")), &claims))
				claims["iss"], claims["iat"] = at, time.Now().Unix()
				claims["exp"] = time.Now().Add(time.Hour).Unix()
				c.change(claims)
				status, _, body := asked(t, from(fmt.Sprintf("127.0.7.%d", i+1)), url+"/mcp",
					http.Header{"Authorization": {"Bearer " + sign(claims)}})
				if status != c.status || status == 200 &&
					(!strings.Contains(body, "proxmox_list_containers") ||
						strings.Contains(body, "proxmox_stop_container")) {
					t.Errorf("a token %s: %d %.300s, want %d", c.claim, status, body, c.status)
				}
			}
		})
	}
}
