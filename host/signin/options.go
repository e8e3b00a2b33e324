// Package signin signs a person in at an OpenID provider, by the authorization code flow with PKCE.
package signin

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Options name the provider, and the people who may sign in. The zero value allows nobody.
type Options struct {
	Issuer       string `koanf:"issuer"` // https URL of the provider; "" for none
	ClientID     string `koanf:"client_id"`
	ClientSecret string `koanf:"client_secret" secret:"true"`
	// scopes to ask for beside openid, such as email, if the provider needs them for Claim
	Scopes []string `koanf:"scopes"`
	// the claim of the ID token that People names; "" is sub
	Claim  string   `koanf:"claim"`
	People []Person `koanf:"people"` // nobody else is signed in
}

// Person maps a value of the claim to a name.
type Person struct {
	Claim string `koanf:"claim"` // to the letter
	Name  string `koanf:"name"`
}

// No letter in these looks like another that is not in them.
var (
	plainForm = regexp.MustCompile(`^[!-~]{1,256}$`)
	scopeForm = regexp.MustCompile(`^[!#-\[\]-~]{1,256}$`) // RFC 6749, 3.3
)

// Validate returns an error that names the key that is wrong, below [approval.oidc]. Each person's
// name must be one of names.
func (o Options) Validate(names []string) error {
	if o.Issuer == "" {
		if o.ClientID+o.ClientSecret+o.Claim != "" || len(o.People)+len(o.Scopes) > 0 {
			return errors.New("issuer: it is not set, and other keys are")
		}
		return nil
	}
	switch {
	case !plainURL(o.Issuer):
		return fmt.Errorf("issuer: %q is not an https URL without user, query and fragment",
			o.Issuer)
	case !plainForm.MatchString(o.ClientID):
		return fmt.Errorf("client_id: %q must be 1 to 256 characters of ASCII without spaces",
			o.ClientID)
	case len(o.ClientSecret) < 16:
		return errors.New("client_secret: needs at least 16 bytes; write it as ${file:PATH} or " +
			"${VAR}")
	case o.Claim != "" && !plainForm.MatchString(o.Claim):
		return fmt.Errorf("claim: %q is not the name of a claim", o.Claim)
	case len(o.People) == 0:
		return errors.New("people: it is empty, so no one could sign in")
	}
	for _, s := range o.Scopes {
		if !scopeForm.MatchString(s) || s == "offline_access" {
			return fmt.Errorf("scopes: %q is not a scope, or asks for more than a sign-in", s)
		}
	}
	seen := map[string]bool{}
	for _, p := range o.People {
		switch {
		case !plainForm.MatchString(p.Claim):
			return fmt.Errorf("people: claim %q must be 1 to 256 characters of ASCII without "+
				"spaces", p.Claim)
		case seen[p.Claim]:
			return fmt.Errorf("people: claim %q is there twice", p.Claim)
		case !slices.Contains(names, p.Name):
			return fmt.Errorf("people: %s: %q is not one of approval.approvers", p.Claim, p.Name)
		}
		seen[p.Claim] = true
	}
	return nil
}

// name returns the name of the person whom the claims identify.
func (o Options) name(claims map[string]any) (string, error) {
	claim := o.claim()
	value, _ := claims[claim].(string)
	// Some providers let people write any address into their own account.
	if claim == "email" && claims["email_verified"] != true {
		return "", errors.New("the provider does not say that it verified the email " +
			"(email_verified); use another claim, such as sub")
	}
	for _, p := range o.People {
		if value != "" && p.Claim == value {
			return p.Name, nil
		}
	}
	return "", fmt.Errorf("claim %s is %.256q, which is not in approval.oidc.people", claim, value)
}

func (o Options) claim() string {
	if o.Claim == "" {
		return "sub"
	}
	return o.Claim
}

// plainURL reports whether raw is only a URL, and one to which a connection cannot be intercepted.
func plainURL(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && u.RawQuery == "" && private(u)
}

// private reports whether a URL is https, or one of loopback, without user and fragment.
func private(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	loopback := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	return u.Host != "" && u.User == nil && u.Fragment == "" &&
		(u.Scheme == "https" || u.Scheme == "http" && loopback) &&
		!strings.ContainsAny(u.Host, " ;,\r\n")
}
