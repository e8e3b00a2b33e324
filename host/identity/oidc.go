package identity

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/time/rate"

	"github.com/caponier-mcp/caponier/host/gate"
)

// OIDC makes this host an OAuth 2.1 resource server: callers bring access tokens (JWTs) that Issuer
// signed for Audience. It never passes them on.
type OIDC struct {
	Issuer string `koanf:"issuer"` // https URL of the provider; "" for none
	// the URL of this host's /mcp as callers know it; tokens must name it
	Audience   string   `koanf:"audience"`
	Algorithms []string `koanf:"algorithms"` // of signatures: RS256, ES256, EdDSA
	IDClaim    string   `koanf:"id_claim"`   // the claim that names the principal: sub
	// the claim that lists roles; "" for none. Policy says which roles may be claimed at all
	RolesClaim string   `koanf:"roles_claim"`
	Scopes     []string `koanf:"scopes"` // that every token must have; also told to clients
}

var algorithms = []string{
	"RS256",
	"RS384",
	"RS512",
	"PS256",
	"PS384",
	"PS512",
	"ES256",
	"ES384",
	"ES512",
	"EdDSA",
}

const (
	maxJWT       = 16 << 10
	maxJWKS      = 1 << 20
	wellKnown    = "/.well-known/oauth-protected-resource"
	providerTime = 10 * time.Second
)

func (o OIDC) validate() error {
	if o.Issuer == "" {
		if o.Audience != "" {
			return errors.New("identity.oidc.audience: there is no identity.oidc.issuer")
		}
		return nil
	}
	for key, raw := range map[string]string{"issuer": o.Issuer, "audience": o.Audience} {
		u, err := url.Parse(raw)
		if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.RawQuery != "" ||
			u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())) {
			return fmt.Errorf("identity.oidc.%s: %q is not a plain https URL", key, raw)
		}
	}
	for _, a := range o.Algorithms {
		if !slices.Contains(algorithms, a) {
			return fmt.Errorf(
				"identity.oidc.algorithms: %q is not an asymmetric signature that is known here (%s)",
				a,
				strings.Join(algorithms, " "),
			)
		}
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// provider verifies one issuer's tokens. It finds the issuer's keys at the first token, so that a
// host starts while its provider is down.
type provider struct {
	OIDC
	client *http.Client
	now    func() time.Time

	mu       sync.Mutex // guards the following
	verifier *oidc.IDTokenVerifier
}

func newProvider(o OIDC, client *http.Client, now func() time.Time) *provider {
	if len(o.Algorithms) == 0 {
		o.Algorithms = []string{"RS256", "ES256", "EdDSA"}
	}
	o.IDClaim = cmp.Or(o.IDClaim, "sub")
	if client == nil {
		client = &http.Client{}
	}
	bounded := *client
	bounded.Timeout = providerTime
	bounded.Transport = &polite{
		next:  client.Transport,
		limit: rate.NewLimiter(rate.Every(5*time.Second), 4),
	}
	bounded.CheckRedirect = func(*http.Request, []*http.Request) error {
		return errors.New("the provider redirects, which is not followed")
	}
	return &provider{OIDC: o, client: &bounded, now: now}
}

// polite keeps callers with made-up key ids from having the provider asked for its keys again and
// again, and bounds what it answers.
type polite struct {
	next  http.RoundTripper
	limit *rate.Limiter
}

func (p *polite) RoundTrip(r *http.Request) (*http.Response, error) {
	if !p.limit.Allow() {
		return nil, errors.New("the provider was asked too often")
	}
	next := p.next
	if next == nil {
		next = http.DefaultTransport
	}
	res, err := next.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxJWKS), res.Body}
	}
	return res, err
}

func (p *provider) ready(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.verifier != nil {
		return p.verifier, nil
	}
	// The keys are fetched again later, when this request is long over.
	found, err := oidc.NewProvider(
		oidc.ClientContext(context.WithoutCancel(ctx), p.client),
		p.Issuer,
	)
	if err != nil {
		return nil, fmt.Errorf("%w: OIDC provider %s: %w", errUnreadable, p.Issuer, err)
	}
	p.verifier = found.Verifier(
		&oidc.Config{ClientID: p.Audience, SupportedSigningAlgs: p.Algorithms, Now: p.now},
	)
	return p.verifier, nil
}

// check gives the principal of a token. What cannot be right is refused before the provider's keys
// are needed.
func (p *provider) check(ctx context.Context, raw string) (gate.Principal, error) {
	var none gate.Principal
	if len(raw) > maxJWT || strings.Count(raw, ".") != 2 {
		return none, errors.New("not a JWT of at most 16 KiB")
	}
	head, _, _ := strings.Cut(raw, ".")
	header, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil {
		return none, fmt.Errorf("JWT header: %w", err)
	}
	var h struct {
		Type string   `json:"typ"`
		Crit []string `json:"crit"`
		Alg  string   `json:"alg"`
	}
	if err := json.Unmarshal(header, &h); err != nil {
		return none, fmt.Errorf("JWT header: %w", err)
	}
	if !slices.Contains(p.Algorithms, h.Alg) || len(h.Crit) > 0 ||
		h.Type != "" &&
			!slices.Contains(
				[]string{"jwt", "at+jwt", "application/at+jwt"},
				strings.ToLower(h.Type),
			) {
		return none, fmt.Errorf(
			"JWT with alg %.20q, typ %.20q or crit is not an access token for us",
			h.Alg,
			h.Type,
		)
	}
	verifier, err := p.ready(ctx)
	if err != nil {
		return none, err
	}
	token, err := verifier.Verify(ctx, raw)
	if err != nil {
		return none, err
	}
	claims := map[string]json.RawMessage{}
	if err := token.Claims(&claims); err != nil {
		return none, fmt.Errorf("claims: %w", err)
	}
	var id string
	if err := json.Unmarshal(claims[p.IDClaim], &id); err != nil || !idForm.MatchString(id) {
		return none, fmt.Errorf(
			"claim %s is not the id of a principal: 1 to 64 of a-z 0-9 . _ @ -",
			p.IDClaim,
		)
	}
	for _, want := range p.Scopes {
		if !slices.Contains(words(claims["scope"], claims["scp"]), want) {
			return none, &scopeError{want}
		}
	}
	roles := []string{}
	if p.RolesClaim != "" {
		for _, r := range words(claims[p.RolesClaim]) {
			if idForm.MatchString(r) {
				roles = append(roles, r)
			}
		}
		if len(roles) == 0 { // to policy, no roles would be roles that nobody has narrowed
			return none, fmt.Errorf("claim %s of %s names no role", p.RolesClaim, id)
		}
	}
	return gate.Principal{ID: id, Roles: roles, Auth: "oidc"}, nil
}

type scopeError struct{ scope string }

func (e *scopeError) Error() string { return "scope " + e.scope + " is missing" }

// words reads claims that are lists or texts of words.
func words(claims ...json.RawMessage) (all []string) {
	for _, c := range claims {
		var list []string
		var text string
		if json.Unmarshal(c, &list) == nil {
			all = append(all, list...)
		} else if json.Unmarshal(c, &text) == nil {
			all = append(all, strings.Fields(text)...)
		}
	}
	return all
}

// metadataURL is where clients learn which provider to go to (RFC 9728).
func (o OIDC) metadataURL() string {
	u, err := url.Parse(o.Audience)
	if err != nil { // validate has parsed it
		panic(err)
	}
	u.Path = wellKnown + strings.TrimSuffix(u.Path, "/")
	return u.String()
}

// Metadata serves the protected resource metadata of RFC 9728 under the paths that it names; nil
// without OIDC. It is public.
func (v *Verifier) Metadata() (paths []string, h http.Handler) {
	if v.oidc == nil {
		return nil, nil
	}
	body, err := json.Marshal(
		map[string]any{
			"resource":                 v.oidc.Audience,
			"authorization_servers":    []string{v.oidc.Issuer},
			"bearer_methods_supported": []string{"header"},
			"scopes_supported":         append([]string{}, v.oidc.Scopes...),
			"resource_name":            "Caponier",
		},
	)
	if err != nil { // it is made of strings
		panic(err)
	}
	u, err := url.Parse(v.oidc.metadataURL())
	if err != nil {
		panic(err)
	}
	return slices.Compact(
			[]string{wellKnown, u.Path},
		), http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet && r.Method != http.MethodHead {
					w.Header().Set("Allow", "GET, HEAD")
					http.Error(w, "GET it", http.StatusMethodNotAllowed)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(body) // a client that is gone needs no answer
			},
		)
}
