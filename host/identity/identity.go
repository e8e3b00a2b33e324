// Package identity authenticates callers over HTTP: by a bearer token of this host, by a token of
// an OpenID provider, or as the one principal that the configuration names.
package identity

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// Principal is one entry of [[identity.principals]].
type Principal struct {
	ID string `koanf:"id"`
	// the only roles that the principal may have, whichever way it comes in; none for all that
	// the site gives it
	Roles []string `koanf:"roles"`
}

// Options of a Verifier. The zero value lets no HTTP caller in.
type Options struct {
	Principals []Principal `koanf:"principals"`
	// the principal of HTTP callers without a token; loopback only, and not beside Tokens or OIDC
	HTTP   string `koanf:"http"`
	Tokens string `koanf:"tokens" path:"true"` // file of bearer tokens, mode 0600; "" for none
	// bearer tokens are in the database of [store] url, for all hosts; not beside Tokens
	InStore bool `koanf:"tokens_in_store"`
	// an OpenID provider whose access tokens are accepted; may stand beside Tokens
	OIDC OIDC `koanf:"oidc"`

	Kept   Kept             `koanf:"-"` // where they are; nil lets none in
	Client *http.Client     `koanf:"-"` // reaches the provider; nil for a plain one
	Log    *slog.Logger     `koanf:"-"` // nil for slog.Default
	Now    func() time.Time `koanf:"-"` // nil for time.Now
}

// Validate returns an error that names the key that is wrong and what it must be.
func (o Options) Validate() error {
	known := map[string]bool{}
	for _, p := range o.Principals {
		switch {
		case p.ID == reserved:
			return fmt.Errorf("identity.principals: id %q is the id of the host itself", p.ID)
		case !idForm.MatchString(p.ID):
			return fmt.Errorf("identity.principals: id %q must be 1 to 64 of a-z 0-9 . _ @ - and "+
				"start with a letter or digit", p.ID)
		case known[p.ID]:
			return fmt.Errorf("identity.principals: id %q is there twice", p.ID)
		}
		for _, r := range p.Roles {
			if !idForm.MatchString(r) {
				return fmt.Errorf("identity.principals: %s: role %q must be 1 to 64 of "+
					"a-z 0-9 . _ @ -", p.ID, r)
			}
		}
		known[p.ID] = true
	}
	if o.HTTP != "" && !known[o.HTTP] {
		return fmt.Errorf("identity.http: %q is not in identity.principals", o.HTTP)
	}
	if o.InStore && o.Tokens != "" {
		return errors.New("identity.tokens_in_store beside identity.tokens: remove one of them")
	}
	if o.HTTP != "" && (o.Tokens != "" || o.InStore || o.OIDC.Issuer != "") {
		return errors.New("identity.http beside identity.tokens or identity.oidc: callers " +
			"without a token would be let in; remove one of them")
	}
	return o.OIDC.validate()
}

// Configured returns the principal with this id as the configuration describes it. A principal
// without roles has all roles that the site grants.
func (o Options) Configured(id string) terms.Principal {
	p := terms.Principal{ID: id, Roles: []string{}, Auth: "config"}
	for _, listed := range o.Principals {
		if listed.ID == id {
			p.Roles, p.Narrowed = append(p.Roles, listed.Roles...), len(listed.Roles) > 0
		}
	}
	return p
}

// narrowed returns the principal with this id, with the roles that both its credential and its
// entry in the configuration name. claimed is nil if the credential names none. If no role is left,
// narrowed returns an error, because no roles would mean all of them.
func (o Options) narrowed(id, auth string, claimed []string) (terms.Principal, error) {
	if id == reserved {
		return terms.Principal{}, fmt.Errorf("%s is the host itself, and no caller", id)
	}
	p := o.Configured(id)
	p.Auth = auth
	if claimed == nil {
		return p, nil
	}
	if len(p.Roles) > 0 {
		own := p.Roles
		claimed = slices.DeleteFunc(slices.Clone(claimed), func(r string) bool {
			return !slices.Contains(own, r)
		})
	}
	if len(claimed) == 0 {
		return terms.Principal{}, fmt.Errorf("the credential of %s names no role that it has in "+
			"identity.principals", id)
	}
	p.Roles, p.Narrowed = claimed, true
	return p, nil
}

// Verifier authenticates HTTP callers. It is safe for concurrent use.
type Verifier struct {
	opts   Options
	tokens *Tokens
	oidc   *provider
	fails  failures
}

// New returns a Verifier. It reads the token file at each request, so that a revocation holds at
// once; the file need not exist yet.
func New(o Options) (*Verifier, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, slog.Default())
	v := &Verifier{opts: o, fails: failures{now: o.Now}}
	if o.Tokens != "" {
		v.tokens = &Tokens{Path: o.Tokens, Now: o.Now}
		if _, err := v.tokens.List(); err != nil {
			return nil, err
		}
	}
	if o.InStore {
		if o.Kept == nil {
			return nil, errors.New("identity.tokens_in_store: [store] url is not set")
		}
		v.tokens = &Tokens{Kept: o.Kept, Now: o.Now}
	}
	if o.OIDC.Issuer != "" {
		v.oidc = newProvider(o.OIDC, o.Client, o.Now)
	}
	return v, nil
}

// Authenticates reports whether HTTP callers must authenticate.
func (v *Verifier) Authenticates() bool { return v.tokens != nil || v.oidc != nil }

// caller is the result of Middleware for a request.
type caller struct {
	terms.Principal
	header []string // Authorization, as it came
	from   netip.Addr
	secret string    // the token of this host, or ""
	at     time.Time // when the token was checked
}

type key struct{}

// Principal returns the caller of the request that ctx belongs to, as Middleware found it.
func (v *Verifier) Principal(ctx context.Context) (terms.Principal, bool) {
	c, ok := ctx.Value(key{}).(caller)
	return c.Principal, ok
}

// Current returns an error unless the credential of the request that ctx belongs to still proves
// the principal and roles that Middleware found. It does not if the token was revoked or removed,
// or cannot be read. A call that began before its token expired stays current until it ends.
func (v *Verifier) Current(ctx context.Context) error {
	c, ok := ctx.Value(key{}).(caller)
	if !ok {
		return errors.New("the caller is not known")
	}
	if c.secret == "" {
		return nil
	}
	p, err := v.own(ctx, c.secret, c.from, c.at)
	if err == nil && (p.ID != c.ID || !slices.Equal(p.Roles, c.Roles)) {
		err = fmt.Errorf("the token of %s was changed", c.ID)
	}
	return err
}

// Admitted returns an error unless a new request with the credential of ctx's would be accepted
// now.
func (v *Verifier) Admitted(ctx context.Context) error {
	c, ok := ctx.Value(key{}).(caller)
	if !ok {
		return errors.New("the caller is not known")
	}
	if !v.Authenticates() {
		return nil
	}
	_, err := v.bearer(ctx, c.header, c.from)
	return err
}

// Middleware passes on only requests of authenticated callers. It answers others with 401,
// regardless of the reason; with 429 after too many failures from one address; with 403 if a scope
// is missing; and with 503 if tokens cannot be checked.
func (v *Verifier) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := v.identify(r)
		if err == nil {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, c)))
			return
		}
		if errors.Is(err, errUnreadable) {
			v.opts.Log.Error("tokens cannot be checked", "error", err)
		} else if !errors.Is(err, errTooMany) {
			v.opts.Log.Warn("an HTTP caller was refused", "from", r.RemoteAddr, "why", err)
		}
		switch scope := (*scopeError)(nil); {
		case errors.Is(err, errTooMany):
			w.Header().Set("Retry-After", "60")
			http.Error(w, "too many failed attempts", http.StatusTooManyRequests)
		case errors.Is(err, errUnreadable):
			w.Header().Set("Retry-After", "5")
			http.Error(w, "callers cannot be identified at the moment",
				http.StatusServiceUnavailable)
		case errors.As(err, &scope):
			w.Header().Set("WWW-Authenticate", v.challenge("insufficient_scope"))
			http.Error(w, "the token lacks a scope", http.StatusForbidden)
		default:
			wrong := "invalid_token"
			if r.Header.Get("Authorization") == "" {
				wrong = "" // RFC 6750: then no error is named
			}
			w.Header().Set("WWW-Authenticate", v.challenge(wrong))
			http.Error(w, "a valid bearer token is required", http.StatusUnauthorized)
		}
	})
}

// challenge returns the WWW-Authenticate header: what the request lacks, and where to get it.
func (v *Verifier) challenge(wrong string) string {
	c := `Bearer realm="caponier"`
	if wrong != "" {
		c += fmt.Sprintf(`, error=%q`, wrong)
	}
	if v.oidc != nil {
		c += fmt.Sprintf(`, resource_metadata=%q`, v.oidc.metadataURL())
		if ask := v.oidc.asked(); len(ask) > 0 {
			c += fmt.Sprintf(`, scope=%q`, strings.Join(ask, " "))
		}
	}
	return c
}

func (v *Verifier) identify(r *http.Request) (caller, error) {
	if !v.Authenticates() {
		if v.opts.HTTP == "" {
			return caller{}, errors.New("identity.http names no principal")
		}
		return caller{Principal: v.opts.Configured(v.opts.HTTP)}, nil
	}
	from, header := address(r), r.Header["Authorization"]
	c, err := v.bearer(r.Context(), header, from)
	// Failures never lock out a valid token from the same address: 256 bits cannot be guessed.
	theirs := !errors.Is(err, errUnreadable) || errors.Is(err, errOften)
	if err != nil && theirs && len(header) > 0 && v.fails.tooMany(from) {
		return caller{}, errTooMany
	}
	return c, err
}

// bearer checks a token of this host, which has a known prefix, or of the provider.
func (v *Verifier) bearer(
	ctx context.Context, header []string, from netip.Addr,
) (c caller, err error) {
	c.header, c.from = header, from
	if len(header) != 1 {
		return c, errors.New("there is no single Authorization header")
	}
	scheme, secret, _ := strings.Cut(header[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return c, errors.New("the Authorization header is not Bearer")
	}
	if v.oidc != nil && !strings.HasPrefix(secret, tokenMark) {
		id, roles, err := v.oidc.check(ctx, secret)
		if err != nil {
			return c, err
		}
		c.Principal, err = v.opts.narrowed(id, "oidc", roles)
		return c, err
	}
	if v.tokens == nil {
		return c, errors.New("identity.tokens is not set")
	}
	c.secret, c.at = secret, v.opts.Now()
	c.Principal, err = v.own(ctx, secret, from, c.at)
	return c, err
}

// own checks a token of this host at a time.
func (v *Verifier) own(
	ctx context.Context, secret string, from netip.Addr, at time.Time,
) (terms.Principal, error) {
	t, err := v.tokens.check(ctx, secret, from, at)
	if err != nil {
		return terms.Principal{}, err
	}
	listed := func(p Principal) bool { return p.ID == t.Principal }
	if !slices.ContainsFunc(v.opts.Principals, listed) {
		return terms.Principal{}, fmt.Errorf("token %s: %s is not in identity.principals",
			t.Prefix, t.Principal)
	}
	return v.opts.narrowed(t.Principal, "token", t.Roles)
}

// Metadata serves the protected resource metadata of RFC 9728 under the paths that it returns; it
// returns nil without OIDC. The metadata is public.
func (v *Verifier) Metadata() (paths []string, h http.Handler) {
	if v.oidc == nil {
		return nil, nil
	}
	body, err := json.Marshal(map[string]any{"resource": v.oidc.resource(),
		"authorization_servers":    []string{v.oidc.Issuer},
		"bearer_methods_supported": []string{"header"},
		"scopes_supported":         append([]string{}, v.oidc.asked()...),
		"resource_name":            "Caponier"})
	if err != nil { // it is made of strings
		panic(err)
	}
	u, err := url.Parse(v.oidc.metadataURL())
	if err != nil {
		panic(err)
	}
	serve := func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "GET it", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // a client that is gone needs no answer
	}
	return slices.Compact([]string{wellKnown, u.Path}), http.HandlerFunc(serve)
}
