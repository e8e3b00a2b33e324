package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// skew is how far the provider's clock may be ahead. A token is never accepted after its expiry.
const skew = time.Minute

// meant returns an error unless the claims belong to an access token of this issuer for this host.
// The signature may not be checked yet.
func (o OIDC) meant(claims map[string]any, now time.Time) error {
	if iss, _ := claims["iss"].(string); iss != o.Issuer {
		return fmt.Errorf("the token is of issuer %.100q, not of %q (identity.oidc.issuer)", iss,
			o.Issuer)
	}
	aud := texts(claims["aud"])
	if !slices.ContainsFunc(aud, func(a string) bool { return slices.Contains(o.Audience, a) }) {
		return fmt.Errorf("the token is for audience %.200q, not for one of %q "+
			"(identity.oidc.audience)", aud, o.Audience)
	}
	for _, k := range []string{"nbf", "iat"} {
		v, there := claims[k]
		if !there || v == nil {
			continue
		}
		at, ok := v.(float64)
		if n, whole := v.(int64); whole {
			at, ok = float64(n), true
		}
		if !ok || at > float64(now.Add(skew).Unix()) {
			return fmt.Errorf("claim %s is %.40v, and now is %d", k, v, now.Unix())
		}
	}
	if err := access(claims); err != nil {
		return err
	}
	return o.client(claims)
}

// access returns an error for a token that the provider signed for another use.
func access(claims map[string]any) error {
	// at_hash proves nothing, because Dex also puts it into access tokens.
	for _, k := range []string{"c_hash", "s_hash", "events", "cnf"} {
		if _, there := claims[k]; there {
			return fmt.Errorf("with claim %s it is an ID token, an event or bound to a key, and "+
				"no access token for the bearer", k)
		}
	}
	for k, good := range map[string][]string{"typ": {"bearer", "jwt", "at+jwt"},
		"token_use": {"access"}} {
		v, there := claims[k]
		if use, _ := v.(string); there && !slices.Contains(good, strings.ToLower(use)) {
			return fmt.Errorf("claim %s is %.40q: it is not an access token", k, use)
		}
	}
	return nil
}

// client returns an error unless a claim names the OAuth client, and each such claim one of
// Clients.
func (o OIDC) client(claims map[string]any) error {
	if len(o.Clients) == 0 {
		return nil
	}
	named := false
	for _, k := range []string{"azp", "client_id", "appid", "cid"} {
		v, there := claims[k]
		if id, _ := v.(string); there && !slices.Contains(o.Clients, id) {
			return fmt.Errorf("the token was issued to client %.100q (%s), which is not in "+
				"identity.oidc.clients", id, k)
		}
		named = named || there
	}
	if !named {
		return errors.New("the token names no client, and identity.oidc.clients is set")
	}
	return nil
}

// claimed returns the principal and the roles in the claims.
func (o OIDC) claimed(claims map[string]any) (id string, roles []string, err error) {
	if id, err = o.principal(claims); err != nil {
		return "", nil, err
	}
	scopes := append(words(claims["scope"]), words(claims["scp"])...)
	for _, want := range o.Scopes {
		if !slices.Contains(scopes, want) {
			return "", nil, &scopeError{want}
		}
	}
	if o.RolesClaim == "" {
		return id, nil, nil
	}
	for _, r := range words(lookup(claims, o.RolesClaim)) {
		if idForm.MatchString(r) {
			roles = append(roles, r)
		}
	}
	if len(roles) == 0 { // to policy, no roles would mean that nothing narrows them
		return "", nil, fmt.Errorf("claim %s of %s names no role", o.RolesClaim, id)
	}
	return id, roles, nil
}

func (o OIDC) principal(claims map[string]any) (string, error) {
	value, _ := lookup(claims, o.IDClaim).(string)
	for _, c := range o.Callers {
		if c.Claim == value {
			return c.Principal, nil
		}
	}
	if len(o.Callers) > 0 {
		return "", fmt.Errorf("claim %s is %.256q, which is not in identity.oidc.callers",
			o.IDClaim, value)
	}
	if !idForm.MatchString(value) {
		return "", fmt.Errorf("claim %s is %.256q, which is not the id of a principal (1 to 64 of "+
			"a-z 0-9 . _ @ -): say in identity.oidc.callers who it is", o.IDClaim, value)
	}
	return value, nil
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
func words(claim any) []string {
	switch v := claim.(type) {
	case string:
		return strings.Fields(v)
	case []any:
		return texts(v)
	}
	return nil
}

// texts reads a claim that is a text or a list of texts.
func texts(claim any) []string {
	if s, ok := claim.(string); ok {
		return []string{s}
	}
	list, _ := claim.([]any)
	all := make([]string, len(list))
	for i, v := range list {
		s, ok := v.(string)
		if !ok {
			return nil
		}
		all[i] = s
	}
	return all
}
