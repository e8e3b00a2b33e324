// Package identity says who is calling: a configured principal or one that a bearer token proves.
package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

// Principal is one entry of [[identity.principals]].
type Principal struct {
	ID    string   `koanf:"id"`
	Roles []string `koanf:"roles"`
}

// Options of a Verifier. Everything that names a principal must name one of Principals.
type Options struct {
	Principals []Principal `koanf:"principals"`
	Stdio      string      `koanf:"stdio"`  // who calls over stdio
	HTTP       string      `koanf:"http"`   // who calls over HTTP without a token; loopback only, and not beside Tokens
	CLI        string      `koanf:"cli"`    // who calls from the command line
	Tokens     string      `koanf:"tokens"` // file of bearer tokens, mode 0600; "" for none

	Log *slog.Logger     `koanf:"-"` // nil for slog.Default
	Now func() time.Time `koanf:"-"` // nil for time.Now
}

var idForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._@-]{0,63}$`)

// Validate says which key is wrong and what would be right.
func (o Options) Validate() error {
	known := map[string]bool{}
	for _, p := range o.Principals {
		switch {
		case !idForm.MatchString(p.ID):
			return fmt.Errorf("identity.principals: id %q must be 1 to 64 of a-z 0-9 . _ @ - and start with a letter or digit", p.ID)
		case known[p.ID]:
			return fmt.Errorf("identity.principals: id %q is there twice", p.ID)
		}
		for _, r := range p.Roles {
			if !idForm.MatchString(r) {
				return fmt.Errorf("identity.principals: %s: role %q must be 1 to 64 of a-z 0-9 . _ @ -", p.ID, r)
			}
		}
		known[p.ID] = true
	}
	for key, id := range map[string]string{"stdio": o.Stdio, "http": o.HTTP, "cli": o.CLI} {
		if id != "" && !known[id] {
			return fmt.Errorf("identity.%s: %q is not in identity.principals", key, id)
		}
	}
	if o.HTTP != "" && o.Tokens != "" {
		return errors.New("identity.http and identity.tokens: with both, a caller without a token would be let in; take one out")
	}
	return nil
}

// Verifier answers who is calling. It is safe for concurrent use.
type Verifier struct {
	opts   Options
	byID   map[string]gate.Principal
	tokens *Tokens
	fails  failures
}

// New makes a Verifier. The token file is read at each request, so that a revocation holds at once; it need not exist yet.
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
		v.byID[p.ID] = gate.Principal{ID: p.ID, Roles: append([]string{}, p.Roles...), Auth: "config"}
	}
	if o.Tokens != "" {
		v.tokens = &Tokens{Path: o.Tokens, Now: o.Now}
		if _, err := v.tokens.List(); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// Stdio is who calls over stdio, CLI who calls from the command line; a Principal without an ID is nobody.
func (v *Verifier) Stdio() gate.Principal { return v.byID[v.opts.Stdio] }
func (v *Verifier) CLI() gate.Principal   { return v.byID[v.opts.CLI] }

// Authenticates is true when HTTP callers prove who they are.
func (v *Verifier) Authenticates() bool { return v.tokens != nil }

type key struct{}

// Principal is who sent the request that the context belongs to, as Middleware found.
func (v *Verifier) Principal(ctx context.Context) (gate.Principal, bool) {
	p, ok := ctx.Value(key{}).(gate.Principal)
	return p, ok
}

// Middleware lets only known callers through. Others get 401, the same whatever was wrong, or 429 after too many failures from one address.
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
			http.Error(w, "callers cannot be identified at the moment", http.StatusServiceUnavailable)
			return
		case err != nil:
			v.opts.Log.Warn("an HTTP caller was turned away", "from", r.RemoteAddr, "why", err)
			w.Header().Set("WWW-Authenticate", challenge(r))
			http.Error(w, "a valid bearer token is required", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, p)))
	})
}

// challenge follows RFC 6750: no error code for a request that brought no token.
func challenge(r *http.Request) string {
	if r.Header.Get("Authorization") == "" {
		return `Bearer realm="caponier"`
	}
	return `Bearer realm="caponier", error="invalid_token"`
}

func (v *Verifier) identify(r *http.Request) (gate.Principal, error) {
	if v.tokens == nil {
		if p := v.byID[v.opts.HTTP]; p.ID != "" {
			return p, nil
		}
		return gate.Principal{}, errors.New("identity.http names nobody")
	}
	from := address(r)
	t, err := v.tokens.check(r.Header["Authorization"], from)
	if errors.Is(err, errUnreadable) {
		return gate.Principal{}, err
	}
	p := v.byID[t.Principal]
	if err == nil && p.ID == "" {
		err = fmt.Errorf("token %s is for %s, who is no longer in identity.principals", t.Prefix, t.Principal)
	}
	if err != nil {
		// A good token is let in whatever else came from its address, so that nobody can lock others out; guessing 256 bits needs no limiter.
		if len(r.Header["Authorization"]) > 0 && v.fails.tooMany(from) {
			return gate.Principal{}, errTooMany
		}
		return gate.Principal{}, err
	}
	p.Auth = "token"
	if len(t.Roles) > 0 { // a token can narrow its principal's roles
		p.Roles = intersect(p.Roles, t.Roles)
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
