package identity

import (
	"encoding/base64"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// What the parser of a JWT accepts is what encoding/json reads in it, in one reading alone, and
// within the bounds: three parts, an algorithm that was configured, no crit, an RSA signature of at
// least 2,048 bits, claims without repeated keys.
func FuzzJWT(f *testing.F) {
	p := newProvider(OIDC{Issuer: "https://id.example", RolesClaim: "a.roles",
		Scopes: []string{"s"}}, nil, nil)
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	add := func(head, body, sig string) { f.Add(part(head) + "." + part(body) + "." + part(sig)) }
	long := strings.Repeat("s", 256)
	add(`{"alg":"RS256"}`, `{"sub":"a","scope":"s","a":{"roles":["r"]}}`, long)
	add(`{"alg":"ES256","typ":"at+jwt"}`, `{"sub":"a","scp":["s"],"a.roles":"x y"}`, "s")
	add(`{"alg":"RS256"}`, `{"sub":"a","sub":"b"}`, long)
	add(`{"alg":"RS256","Alg":"none"}`, `{"sub":"a"}`, long)
	add(`{"alg":"RS256","crit":[]}`, `{}`, long)
	add(`{"alg":"none"}`, `{}`, "")
	f.Add("..")
	f.Fuzz(func(t *testing.T, raw string) {
		claims, err := p.parse(raw)
		if err != nil {
			return
		}
		parts := strings.Split(raw, ".")
		if len(parts) != 3 || len(raw) > maxJWT {
			t.Fatalf("accepted %d parts in %d bytes", len(parts), len(raw))
		}
		var head map[string]any
		body := map[string]any{}
		for i, into := range []any{&head, &body} {
			data, err := base64.RawURLEncoding.DecodeString(parts[i])
			if err != nil || json.Unmarshal(data, into) != nil {
				t.Fatalf("part %d is no JSON object", i)
			}
		}
		alg, _ := head["alg"].(string)
		if !slices.Contains(p.Algorithms, alg) || head["crit"] != nil {
			t.Fatalf("accepted the header %v", head)
		}
		sig, err := base64.RawURLEncoding.DecodeString(parts[2])
		if err != nil || alg[0] == 'R' && len(sig) < minRSA/8 {
			t.Fatalf("accepted a signature of %d bytes for %s", len(sig), alg)
		}
		if len(body) != len(claims) {
			t.Fatalf("read %v, encoding/json reads %v", claims, body)
		}
		id, roles, err := p.claimed(claims)
		if err != nil {
			return
		}
		sub, _ := body["sub"].(string)
		if id != sub || !idForm.MatchString(id) || len(roles) == 0 {
			t.Fatalf("%v is %q with roles %q", body, id, roles)
		}
		for _, r := range roles {
			if !idForm.MatchString(r) {
				t.Fatalf("the role %q", r)
			}
		}
	})
}

// FuzzBearer holds that no text that is not the token itself is taken for it. The token is the same
// in each process, so that the corpus means the same to all.
func FuzzBearer(f *testing.F) {
	tokens := &Tokens{Path: f.TempDir() + "/tokens"}
	_, kept, err := tokens.New("anna", nil, "", maxLifetime)
	if err != nil {
		f.Fatal(err)
	}
	secret := tokenMark + strings.Repeat("Ab3-_", 9)[:43]
	kept.Prefix, kept.SHA256 = secret[:prefixLength], digest(secret)
	if err := tokens.change("", func([]Token) ([]Token, error) {
		return []Token{kept}, nil
	}); err != nil {
		f.Fatal(err)
	}
	f.Add(secret)
	f.Add(secret + " ")
	f.Add(strings.ToUpper(secret))
	f.Add(secret[:prefixLength] + strings.Repeat("A", 35))
	f.Add(secret[:len(secret)-1] + "4") // the same bytes to a lenient reader of base64
	f.Fuzz(func(t *testing.T, given string) {
		_, err := tokens.check(t.Context(), given, netip.Addr{}, tokens.now())
		if (err == nil) != (given == secret) {
			t.Fatalf("%q: %v", given, err)
		}
	})
}
