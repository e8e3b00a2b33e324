// Package identity says who is calling: a configured principal, or one that a bearer token of ours
// or of an OpenID provider proves.
package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

// Principal is one entry of [[identity.principals]].
type Principal struct {
	ID    string   `koanf:"id"`
	Roles []string `koanf:"roles"` // none: all that policy gives it; otherwise only these of them
}

// Options of a Verifier. Everything that names a principal must name one of Principals.
type Options struct {
	Principals []Principal `koanf:"principals"`
	Stdio      string      `koanf:"stdio"` // who calls over stdio
	// who calls over HTTP without a token; loopback only, and not beside Tokens
	HTTP   string `koanf:"http"`
	CLI    string `koanf:"cli"`    // who calls from the command line
	Tokens string `koanf:"tokens"` // file of bearer tokens, mode 0600; "" for none
	// an OpenID provider whose tokens are good here; may stand beside Tokens
	OIDC OIDC `koanf:"oidc"`

	Client *http.Client     `koanf:"-"` // reaches the provider; nil for a plain one
	Log    *slog.Logger     `koanf:"-"` // nil for slog.Default
	Now    func() time.Time `koanf:"-"` // nil for time.Now
}

var idForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._@-]{0,63}$`)

// Validate says which key is wrong and what would be right.
func (o Options) Validate() error {
	known := map[string]bool{}
	for _, p := range o.Principals {
		switch {
		case !idForm.MatchString(p.ID):
			return fmt.Errorf(
				"identity.principals: id %q must be 1 to 64 of a-z 0-9 . _ @ - and start with a letter or digit",
				p.ID,
			)
		case known[p.ID]:
			return fmt.Errorf("identity.principals: id %q is there twice", p.ID)
		}
		for _, r := range p.Roles {
			if !idForm.MatchString(r) {
				return fmt.Errorf(
					"identity.principals: %s: role %q must be 1 to 64 of a-z 0-9 . _ @ -",
					p.ID,
					r,
				)
			}
		}
		known[p.ID] = true
	}
	for key, id := range map[string]string{"stdio": o.Stdio, "http": o.HTTP, "cli": o.CLI} {
		if id != "" && !known[id] {
			return fmt.Errorf("identity.%s: %q is not in identity.principals", key, id)
		}
	}
	if o.HTTP != "" && (o.Tokens != "" || o.OIDC.Issuer != "") {
		return errors.New(
			"identity.http beside identity.tokens or identity.oidc: a caller without a token would be let in; take one out",
		)
	}
	return o.OIDC.validate()
}

// Verifier answers who is calling. It is safe for concurrent use.
type Verifier struct {
	opts   Options
	byID   map[string]gate.Principal
	tokens *Tokens
	oidc   *provider
	fails  failures
}

// New makes a Verifier. The token file is read at each request, so that a revocation holds at once;
// it need not exist yet.
func New(o Options) (*Verifier, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	v := &Verifier{opts: o, byID: map[string]gate.Principal{}, fails: failures{now: o.Now}}
	for _, p := range o.Principals {
		v.byID[p.ID] = gate.Principal{
			ID:    p.ID,
			Roles: append([]string{}, p.Roles...),
			Auth:  "config",
		}
	}
	if o.Tokens != "" {
		v.tokens = &Tokens{Path: o.Tokens, Now: o.Now}
		if _, err := v.tokens.List(); err != nil {
			return nil, err
		}
	}
	if o.OIDC.Issuer != "" {
		v.oidc = newProvider(o.OIDC, o.Client, o.Now)
	}
	return v, nil
}

// Stdio is who calls over stdio, CLI who calls from the command line; a Principal without an ID is
// nobody.
func (v *Verifier) Stdio() gate.Principal { return v.byID[v.opts.Stdio] }
func (v *Verifier) CLI() gate.Principal   { return v.byID[v.opts.CLI] }

// Authenticates is true when HTTP callers prove who they are.
func (v *Verifier) Authenticates() bool { return v.tokens != nil || v.oidc != nil }

type key struct{}

// Principal is who sent the request that the context belongs to, as Middleware found.
func (v *Verifier) Principal(ctx context.Context) (gate.Principal, bool) {
	p, ok := ctx.Value(key{}).(gate.Principal)
	return p, ok
}

// Middleware lets only known callers through. Others get 401, the same whatever was wrong, or 429
// after too many failures from one address.
func (v *Verifier) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := v.identify(r)
		switch {
		case errors.Is(err, errTooMany):
			w.Header().Set("Retry-After", "60")
			http.Error(w, "too many failed attempts", http.StatusTooManyRequests)
			return
		case errors.Is(err, errUnreadable):
			v.opts.Log.Error("tokens cannot be checked", "error", err)
			http.Error(
				w,
				"callers cannot be identified at the moment",
				http.StatusServiceUnavailable,
			)
			return
		case err != nil:
			v.opts.Log.Warn("an HTTP caller was turned away", "from", r.RemoteAddr, "why", err)
			scope := (*scopeError)(nil)
			if errors.As(err, &scope) {
				w.Header().Set("WWW-Authenticate", v.challenge("insufficient_scope"))
				http.Error(w, "the token lacks a scope", http.StatusForbidden)
				return
			}
			wrong := "invalid_token"
			// RFC 6750: no error for a request that brought no token
			if r.Header.Get("Authorization") == "" {
				wrong = ""
			}
			w.Header().Set("WWW-Authenticate", v.challenge(wrong))
			http.Error(w, "a valid bearer token is required", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, p)))
	})
}

// challenge says what a caller lacks, and where a client can find out how to get it.
func (v *Verifier) challenge(wrong string) string {
	c := `Bearer realm="caponier"`
	if wrong != "" {
		c += fmt.Sprintf(`, error=%q`, wrong)
	}
	if v.oidc != nil {
		c += fmt.Sprintf(`, resource_metadata=%q`, v.oidc.metadataURL())
		if len(v.oidc.Scopes) > 0 {
			c += fmt.Sprintf(`, scope=%q`, strings.Join(v.oidc.Scopes, " "))
		}
	}
	return c
}

func (v *Verifier) identify(r *http.Request) (gate.Principal, error) {
	if !v.Authenticates() {
		if p := v.byID[v.opts.HTTP]; p.ID != "" {
			return p, nil
		}
		return gate.Principal{}, errors.New("identity.http names nobody")
	}
	from, header := address(r), r.Header["Authorization"]
	p, err := v.bearer(r.Context(), header, from)
	// A good token is let in whatever else came from its address, so that nobody can lock others
	// out; guessing 256 bits needs no limiter.
	if err != nil && !errors.Is(err, errUnreadable) && len(header) > 0 && v.fails.tooMany(from) {
		return gate.Principal{}, errTooMany
	}
	return p, err
}

// bearer tells our own tokens from the provider's by their mark.
func (v *Verifier) bearer(
	ctx context.Context,
	header []string,
	from netip.Addr,
) (gate.Principal, error) {
	if len(header) != 1 {
		return gate.Principal{}, errors.New("no single Authorization header")
	}
	scheme, secret, _ := strings.Cut(header[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return gate.Principal{}, errors.New("the Authorization header is not Bearer")
	}
	if v.oidc != nil && !strings.HasPrefix(secret, tokenMark) {
		return v.oidc.check(ctx, secret)
	}
	if v.tokens == nil {
		return gate.Principal{}, errors.New("tokens of our own are not switched on")
	}
	t, err := v.tokens.check(secret, from)
	if err != nil {
		return gate.Principal{}, err
	}
	p := v.byID[t.Principal]
	if p.ID == "" {
		return p, fmt.Errorf(
			"token %s is for %s, who is not in identity.principals",
			t.Prefix,
			t.Principal,
		)
	}
	p.Auth = "token"
	if len(t.Roles) == 0 {
		return p, nil
	}
	// A token can narrow its principal's roles. To policy, a caller without roles is one whose
	// roles nobody has narrowed, so none may be left over.
	if len(p.Roles) > 0 {
		t.Roles = intersect(p.Roles, t.Roles)
	}
	if p.Roles = t.Roles; len(p.Roles) == 0 {
		return gate.Principal{}, fmt.Errorf(
			"token %s is for roles that %s does not have",
			t.Prefix,
			t.Principal,
		)
	}
	return p, nil
}

func intersect(a, b []string) []string {
	both := []string{}
	for _, x := range a {
		for _, y := range b {
			if x == y {
				both = append(both, x)
				break
			}
		}
	}
	return both
}
