package identity

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/time/rate"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

// OIDC makes this host an OAuth 2.1 resource server: callers bring access tokens (JWTs) that Issuer
// signed for Audience. The host never passes them on.
type OIDC struct {
	Issuer string `koanf:"issuer"` // https URL of the provider; "" for none
	// what tokens must name as their audience: the URL of this host's /mcp, unless Resource is set
	Audience string `koanf:"audience"`
	// the URL of this host's /mcp as callers know it, when the provider's audience is no URL; "" is
	// Audience
	Resource   string   `koanf:"resource"`
	Algorithms []string `koanf:"algorithms"` // of signatures; none for RS256, ES256, EdDSA
	IDClaim    string   `koanf:"id_claim"`   // the claim that holds the principal's id; "" is sub
	// the claim that lists roles, or its path with dots, such as realm_access.roles. A token
	// without a role in it is refused. "" means that tokens do not narrow roles.
	RolesClaim string   `koanf:"roles_claim"`
	Scopes     []string `koanf:"scopes"` // that every token must have; also told to clients
}

var algorithms = strings.Fields("RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA")

const (
	maxJWT       = 16 << 10
	maxJWKS      = 1 << 20
	minRSA       = 2048 // bits of a key
	wellKnown    = "/.well-known/oauth-protected-resource"
	providerTime = 4 * time.Second // for one answer
)

var audienceForm = regexp.MustCompile(`^[!-~]{1,256}$`)

func (o OIDC) validate() error {
	if o.Issuer == "" {
		if o.Audience != "" {
			return errors.New("identity.oidc.audience: there is no identity.oidc.issuer")
		}
		return nil
	}
	for key, raw := range map[string]string{"issuer": o.Issuer, "resource": o.resource()} {
		u, err := url.Parse(raw)
		if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.RawQuery != "" ||
			u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())) {
			if key == "resource" && o.Resource == "" {
				return fmt.Errorf("identity.oidc.audience: %q is not a plain https URL; set it to "+
					"the URL of this host's /mcp, or set identity.oidc.resource to that", raw)
			}
			return fmt.Errorf("identity.oidc.%s: %q is not a plain https URL", key, raw)
		}
	}
	if !audienceForm.MatchString(o.Audience) {
		return fmt.Errorf("identity.oidc.audience: %q must be 1 to 256 characters without spaces",
			o.Audience)
	}
	for _, a := range o.Algorithms {
		if !slices.Contains(algorithms, a) {
			return fmt.Errorf("identity.oidc.algorithms: %q must be one of %s",
				a, strings.Join(algorithms, " "))
		}
	}
	return nil
}

func (o OIDC) resource() string { return cmp.Or(o.Resource, o.Audience) }

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// provider verifies the tokens of one issuer. It finds the issuer's keys at the first token, so
// that a host starts while its provider is down.
type provider struct {
	OIDC
	client *http.Client
	now    func() time.Time

	mu       sync.Mutex // guards the following
	verifier *oidc.IDTokenVerifier
	failed   error     // why there is none,
	at       time.Time // and since when
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
	bounded.Transport = &polite{cmp.Or[http.RoundTripper](client.Transport, http.DefaultTransport),
		rate.NewLimiter(rate.Every(5*time.Second), 4)}
	bounded.CheckRedirect = func(*http.Request, []*http.Request) error {
		return errors.New("the provider redirects, which is not followed")
	}
	return &provider{OIDC: o, client: &bounded, now: now}
}

// polite bounds how often tokens with made-up key ids make this host ask the provider, and how much
// it answers.
type polite struct {
	next  http.RoundTripper
	limit *rate.Limiter
}

func (p *polite) RoundTrip(r *http.Request) (*http.Response, error) {
	if !p.limit.Allow() {
		return nil, errors.New("the provider was asked too often")
	}
	res, err := p.next.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxJWKS), res.Body}
	}
	return res, err
}

func (p *provider) ready(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	began := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.verifier != nil {
		return p.verifier, nil
	}
	if p.at.After(began) { // it failed while this caller waited
		return nil, p.failed
	}
	// Keys are fetched again later with the same context, when this request is over.
	found, err := oidc.NewProvider(
		oidc.ClientContext(context.WithoutCancel(ctx), p.client), p.Issuer)
	if err != nil {
		p.failed = fmt.Errorf("%w: OIDC provider %s: %w", errUnreadable, p.Issuer, err)
		p.at = time.Now()
		return nil, p.failed
	}
	p.verifier = found.Verifier(&oidc.Config{ClientID: p.Audience, Now: p.now,
		SupportedSigningAlgs: p.Algorithms})
	return p.verifier, nil
}

// check returns the id and roles that a token proves; roles are nil without RolesClaim. What the
// token's form already forbids is refused before the provider's keys are needed.
func (p *provider) check(ctx context.Context, raw string) (id string, roles []string, err error) {
	claims, err := p.parse(raw)
	if err != nil {
		return "", nil, err
	}
	verifier, err := p.ready(ctx)
	if err != nil {
		return "", nil, err
	}
	if _, err := verifier.Verify(ctx, raw); err != nil {
		return "", nil, err
	}
	return p.claimed(claims)
}

// parse returns the claims of a token whose signature is not checked yet.
func (p *provider) parse(raw string) (claims map[string]any, err error) {
	parts := strings.Split(raw, ".")
	if len(raw) > maxJWT || len(parts) != 3 {
		return nil, errors.New("not a JWT of at most 16 KiB")
	}
	header, err := object(parts[0])
	if err != nil {
		return nil, fmt.Errorf("JWT header: %w", err)
	}
	alg, _ := header["alg"].(string)
	if _, crit := header["crit"]; crit || !slices.Contains(p.Algorithms, alg) {
		return nil, fmt.Errorf("JWT with alg %.20q or crit is not accepted", alg)
	}
	switch typ, _ := header["typ"].(string); strings.ToLower(typ) {
	case "", "jwt", "at+jwt", "application/at+jwt":
	default:
		return nil, fmt.Errorf("JWT with typ %.20q is not an access token", typ)
	}
	// A signature is as long as the key's modulus, or it does not verify.
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || (alg[0] == 'R' || alg[0] == 'P') && len(sig)*8 < minRSA {
		return nil, fmt.Errorf("JWT is signed with an RSA key under %d bits, or not at all", minRSA)
	}
	if claims, err = object(parts[1]); err != nil {
		return nil, fmt.Errorf("JWT claims: %w", err)
	}
	return claims, nil
}

// object decodes a part of a JWT strictly: two readers of it must not see two values.
func object(part string) (map[string]any, error) {
	data, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return nil, err
	}
	v, err := abi.Decode(data, maxJWT)
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("not an object")
	}
	return m, nil
}

func (p *provider) claimed(claims map[string]any) (id string, roles []string, err error) {
	if id, _ = claims[p.IDClaim].(string); !idForm.MatchString(id) {
		return "", nil, fmt.Errorf("claim %s is not the id of a principal: 1 to 64 of "+
			"a-z 0-9 . _ @ -", p.IDClaim)
	}
	scopes := append(words(claims["scope"]), words(claims["scp"])...)
	for _, want := range p.Scopes {
		if !slices.Contains(scopes, want) {
			return "", nil, &scopeError{want}
		}
	}
	if p.RolesClaim == "" {
		return id, nil, nil
	}
	for _, r := range words(lookup(claims, p.RolesClaim)) {
		if idForm.MatchString(r) {
			roles = append(roles, r)
		}
	}
	if len(roles) == 0 { // to policy, no roles would mean that nothing narrows them
		return "", nil, fmt.Errorf("claim %s of %s names no role", p.RolesClaim, id)
	}
	return id, roles, nil
}

type scopeError struct{ scope string }

func (e *scopeError) Error() string { return "scope " + e.scope + " is missing" }

// lookup returns the claim with this name, or else the one at this path of names with dots.
func lookup(claims map[string]any, name string) any {
	if v, ok := claims[name]; ok {
		return v
	}
	first, rest, nested := strings.Cut(name, ".")
	inner, ok := claims[first].(map[string]any)
	if !nested || !ok {
		return nil
	}
	return lookup(inner, rest)
}

// words reads a claim that is a list of words, or a text of them.
func words(claim any) (all []string) {
	switch v := claim.(type) {
	case string:
		return strings.Fields(v)
	case []any:
		for _, w := range v {
			word, ok := w.(string)
			if !ok {
				return nil
			}
			all = append(all, word)
		}
	}
	return all
}

// metadataURL is where clients learn which provider to go to (RFC 9728).
func (o OIDC) metadataURL() string {
	u, err := url.Parse(o.resource())
	if err != nil { // validate has parsed it
		panic(err)
	}
	u.Path = wellKnown + strings.TrimSuffix(u.Path, "/")
	return u.String()
}
