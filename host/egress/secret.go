package egress

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Credential is a secret that a plugin can name but not read. The host adds it after the decision,
// to requests of the named tools to the named origins, and removes it from responses.
type Credential struct {
	Name string `koanf:"name"`
	// such as https://api.example.com, with the port when it is not the scheme's own
	Origins []string `koanf:"origins"`
	Tools   []string `koanf:"tools"`
	Header  string   `koanf:"header"` // Authorization when empty
	// before the secret, such as "Bearer "; only of Authorization is that the default
	Prefix string `koanf:"prefix"`
	Secret string `koanf:"secret"  secret:"true"`

	origins []string
}

// minSecret is the minimum length of a secret in bytes. A shorter one may equal ordinary text.
const minSecret = 8

// ready returns c with its defaults.
func (c Credential) ready() (Credential, error) {
	shows := func(r rune) bool { return r >= ' ' && r < 0x7f }
	switch {
	case c.Name == "":
		return c, errors.New("name is missing")
	case len(c.Origins) == 0 || len(c.Tools) == 0:
		return c, fmt.Errorf("%s: origins and tools must say where and for which tools it may be "+
			"used", c.Name)
	case len(c.Secret) < minSecret ||
		strings.ContainsFunc(c.Secret, func(r rune) bool { return !shows(r) }):
		return c, fmt.Errorf("%s: secret must be at least %d characters of ASCII on one line; "+
			"write ${VAR} or ${file:PATH}", c.Name, minSecret)
	}
	c.Header = http.CanonicalHeaderKey(cmp.Or(c.Header, "Authorization"))
	if c.Header == "Authorization" {
		c.Prefix = cmp.Or(c.Prefix, "Bearer ")
	}
	if _, err := headers([][2]string{{c.Header, c.Prefix + c.Secret}}); err != nil {
		return c, fmt.Errorf("%s: header: %w", c.Name, err)
	}
	c.origins = nil
	for _, o := range c.Origins {
		t, err := origin(o)
		if err != nil {
			return c, fmt.Errorf("%s: origins: %w", c.Name, err)
		}
		c.origins = append(c.origins, t)
	}
	return c, nil
}

// forms are the texts in which a server may echo a secret, longest first.
func forms(credentials []Credential) (all [][]byte) {
	for _, c := range credentials {
		quoted, _ := json.Marshal(c.Secret) // text always encodes
		for _, s := range []string{c.Secret, url.QueryEscape(c.Secret), url.PathEscape(c.Secret),
			string(quoted[1 : len(quoted)-1]), base64.StdEncoding.EncodeToString([]byte(c.Secret)),
			base64.RawURLEncoding.EncodeToString([]byte(c.Secret))} {
			if !slices.ContainsFunc(all, func(b []byte) bool { return string(b) == s }) {
				all = append(all, []byte(s))
			}
		}
	}
	slices.SortStableFunc(all, func(a, b []byte) int { return len(b) - len(a) })
	return all
}
