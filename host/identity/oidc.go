package identity

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/time/rate"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

const (
	maxJWT       = 16 << 10
	maxJWKS      = 1 << 20
	minRSA       = 2048            // bits of a key
	providerTime = 4 * time.Second // for one answer
	freshKeys    = 10 * time.Minute
	staleKeys    = time.Hour // while the provider cannot be reached
	again        = 30 * time.Second
	discovery    = "/.well-known/openid-configuration"
)

var errOften = errors.New("the provider was asked too often")

// provider verifies the tokens of one issuer. It fetches the issuer's keys at the first token, so
// that a host can start while its provider is down. It fetches them again after freshKeys, so that
// it forgets a key that the provider withdrew.
type provider struct {
	OIDC
	client *http.Client
	now    func() time.Time

	mu       sync.Mutex // guards the following
	verifier *oidc.IDTokenVerifier
	since    time.Time // when its provider was found
	failed   error     // why none was found,
	at       time.Time // and since when
}

func newProvider(o OIDC, client *http.Client, now func() time.Time) *provider {
	if len(o.Algorithms) == 0 {
		o.Algorithms = []string{"RS256", "ES256", "EdDSA"}
	}
	o.IDClaim = cmp.Or(o.IDClaim, "sub")
	bounded := *cmp.Or(client, &http.Client{})
	bounded.Timeout = providerTime
	bounded.Transport = &polite{cmp.Or[http.RoundTripper](bounded.Transport, http.DefaultTransport),
		rate.NewLimiter(rate.Every(5*time.Second), 4),
		rate.NewLimiter(rate.Every(5*time.Second), 4)}
	bounded.CheckRedirect = func(*http.Request, []*http.Request) error {
		return errors.New("the provider redirects, which is not followed")
	}
	return &provider{OIDC: o, client: &bounded, now: now}
}

// polite limits how often tokens with forged key ids make this host contact the provider, and the
// size of the answer. All callers share the fetched keys.
type polite struct {
	next       http.RoundTripper
	keys, find *rate.Limiter
}

func (p *polite) RoundTrip(r *http.Request) (*http.Response, error) {
	limit := p.keys
	if strings.HasSuffix(r.URL.Path, discovery) {
		limit = p.find
	}
	if !limit.Allow() {
		return nil, errOften
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

// ready returns the verifier. While the provider cannot be reached, it is the last one, for a time.
func (p *provider) ready(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	began := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	age := p.now().Sub(p.since)
	old := p.verifier != nil && age < staleKeys
	if old && (age < freshKeys || began.Sub(p.at) < again) {
		return p.verifier, nil
	}
	if p.at.After(began) { // it failed while this caller waited
		return nil, p.failed
	}
	verifier, err := p.find(ctx)
	if err == nil {
		p.verifier, p.since = verifier, p.now()
		return verifier, nil
	}
	p.failed = fmt.Errorf("%w: OIDC provider %s: %w", errUnreadable, p.Issuer, err)
	p.at = time.Now()
	if old {
		return p.verifier, nil
	}
	return nil, p.failed
}

func (p *provider) find(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	// Keys are fetched again later with the same context, when this request is over.
	found, err := oidc.NewProvider(
		oidc.ClientContext(context.WithoutCancel(ctx), p.client), p.Issuer)
	if err != nil {
		return nil, err
	}
	var where struct {
		Keys string `json:"jwks_uri"`
	}
	if err := found.Claims(&where); err != nil || !plainURL(where.Keys) {
		return nil, fmt.Errorf("its keys are at %.200q, which is not a plain https URL", where.Keys)
	}
	// meant has checked the audience, of which there may be several.
	return found.Verifier(&oidc.Config{SkipClientIDCheck: true, Now: p.now,
		SupportedSigningAlgs: p.Algorithms}), nil
}

// check returns the id and roles that a token proves; roles are nil without RolesClaim. It refuses
// a token of a wrong form before it needs the provider's keys.
func (p *provider) check(ctx context.Context, raw string) (id string, roles []string, err error) {
	claims, err := p.parse(raw)
	if err != nil {
		return "", nil, err
	}
	if err := p.meant(claims, p.now()); err != nil {
		return "", nil, err
	}
	verifier, err := p.ready(ctx)
	if err != nil {
		return "", nil, err
	}
	if _, err := verifier.Verify(ctx, raw); err != nil {
		return "", nil, unverified(err)
	}
	return p.claimed(claims)
}

// unverified distinguishes a missing answer of the provider from a wrong signature.
func unverified(err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, errOften.Error()):
		return fmt.Errorf("%w: %w", errUnreadable, errOften)
	case strings.Contains(text, "fetching keys"):
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return err
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
