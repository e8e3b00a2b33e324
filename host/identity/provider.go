package identity

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// OIDC makes this host an OAuth 2.1 resource server: callers bring access tokens (JWTs) that Issuer
// signed for one of Audience. The host never passes them on.
type OIDC struct {
	Issuer string `koanf:"issuer"` // https URL of the provider; "" for none
	// what tokens must name one of as their audience: the URL of this host's /mcp, unless Resource
	// is set. One may stand as a text.
	Audience []string `koanf:"audience" single:"true"`
	// the URL of this host's /mcp as callers know it, if the audience is not a URL, or there are
	// several; "" means the one Audience
	Resource   string   `koanf:"resource"`
	Algorithms []string `koanf:"algorithms"` // of signatures; none for RS256, ES256, EdDSA
	// the claim that holds the principal's id, or its path with dots; "" is sub
	IDClaim string `koanf:"id_claim"`
	// maps exact values of IDClaim to principals. If it has entries, all other values are refused;
	// if it has none, the value itself is the principal's id.
	Callers []OIDCCaller `koanf:"callers"`
	// the OAuth clients whose tokens are accepted, as named by azp, client_id, appid or cid; empty
	// for every client of the provider
	Clients []string `koanf:"clients"`
	// the claim that lists roles, or its path with dots, such as realm_access.roles. A token
	// without a role in it is refused. "" means that tokens do not narrow roles.
	RolesClaim string   `koanf:"roles_claim"`
	Scopes     []string `koanf:"scopes"` // that every token must have
	// the scopes that clients must request from the provider; empty for Scopes
	AskScopes []string `koanf:"ask_scopes"`
}

// OIDCCaller maps a value of the id claim to a principal.
type OIDCCaller struct {
	Claim     string `koanf:"claim"`
	Principal string `koanf:"principal"`
}

var algorithms = strings.Fields("RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA")

const wellKnown = "/.well-known/oauth-protected-resource"

// plainForm is the form of audiences, scopes, clients and values of claims in the configuration. It
// contains only characters that cannot be confused with others.
var (
	plainForm = regexp.MustCompile(`^[!-~]{1,256}$`)
	scopeForm = regexp.MustCompile(`^[!#-\[\]-~]{1,256}$`) // RFC 6749, 3.3
)

func (o OIDC) validate() error {
	if o.Issuer == "" {
		if len(o.Audience)+len(o.Callers)+len(o.Clients) > 0 {
			return errors.New("identity.oidc.audience: there is no identity.oidc.issuer")
		}
		return nil
	}
	if len(o.Audience) > 1 && o.Resource == "" {
		return errors.New("identity.oidc.resource: with several audiences, set it to the URL of " +
			"this host's /mcp")
	}
	if !plainURL(o.Issuer) {
		return fmt.Errorf("identity.oidc.issuer: %q is not a plain https URL", o.Issuer)
	}
	if raw := o.resource(); !plainURL(raw) {
		if o.Resource == "" {
			return fmt.Errorf("identity.oidc.audience: %q is not a plain https URL; set it to "+
				"the URL of this host's /mcp, or set identity.oidc.resource to that", raw)
		}
		return fmt.Errorf("identity.oidc.resource: %q is not a plain https URL", raw)
	}
	for _, a := range o.Algorithms {
		if !slices.Contains(algorithms, a) {
			return fmt.Errorf("identity.oidc.algorithms: %q must be one of %s",
				a, strings.Join(algorithms, " "))
		}
	}
	if len(o.Audience) == 0 {
		return errors.New("identity.oidc.audience: it is not set")
	}
	for _, l := range []struct {
		key  string
		all  []string
		form *regexp.Regexp
	}{{"audience", o.Audience, plainForm}, {"clients", o.Clients, plainForm},
		{"scopes", o.Scopes, scopeForm}, {"ask_scopes", o.AskScopes, scopeForm}} {
		for _, v := range l.all {
			if !l.form.MatchString(v) {
				return fmt.Errorf("identity.oidc.%s: %q must be 1 to 256 characters of ASCII "+
					"without spaces", l.key, v)
			}
		}
	}
	return o.validateCallers()
}

func (o OIDC) validateCallers() error {
	seen := map[string]bool{}
	for _, c := range o.Callers {
		switch {
		case !plainForm.MatchString(c.Claim):
			return fmt.Errorf("identity.oidc.callers: claim %q must be 1 to 256 characters of "+
				"ASCII without spaces", c.Claim)
		case seen[c.Claim]:
			return fmt.Errorf("identity.oidc.callers: claim %q is there twice", c.Claim)
		case !idForm.MatchString(c.Principal) || c.Principal == reserved:
			return fmt.Errorf("identity.oidc.callers: %s: principal %q must be 1 to 64 of "+
				"a-z 0-9 . _ @ - and not %s", c.Claim, c.Principal, reserved)
		}
		seen[c.Claim] = true
	}
	return nil
}

// plainURL reports whether raw is an https URL, or one of loopback, without user, query or
// fragment.
func plainURL(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && u.Host != "" && u.User == nil && u.Fragment == "" && u.RawQuery == "" &&
		(u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname()))
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (o OIDC) resource() string {
	if len(o.Audience) != 1 {
		return o.Resource
	}
	return cmp.Or(o.Resource, o.Audience[0])
}

// asked returns the scopes that clients must request, or nil.
func (o OIDC) asked() []string {
	if len(o.AskScopes) > 0 {
		return o.AskScopes
	}
	return o.Scopes
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
