package egress

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	maxURL         = 8192
	maxHeaders     = 64
	maxHeaderBytes = 16 << 10
)

// methods are those that a site can list. GET and HEAD are green, so nothing may override them.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
	http.MethodPatch, http.MethodDelete}

var (
	// Many servers read any other sign in a header's name as a dash: X_HTTP_Method_Override would
	// be X-HTTP-Method-Override.
	headerForm = regexp.MustCompile("^[A-Za-z0-9-]{1,128}$")
	// The last label begins with a letter: 127.1, 0x7f000001 and 2130706433 are addresses to many
	// resolvers.
	hostForm = regexp.MustCompile(
		`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	// Only the host sets headers that frame a request or control a proxy. A method in a header
	// would not be the one that was decided.
	forbidden = strings.Fields(`Host Connection Content-Length Transfer-Encoding Te Trailer Upgrade
		Keep-Alive Expect Accept-Encoding X-Http-Method X-Http-Method-Override X-Method-Override
		X-Forwarded-Method X-Original-Method X-Original-Url X-Rewrite-Url`)
	// The headers that are also sent to another origin.
	harmless = []string{"Accept", "Accept-Language", "User-Agent"}
)

// target is where a request goes, from the same reading of the URL that policy saw.
type target struct {
	*url.URL
	host string
	port int
}

func (t target) origin() string {
	host := t.host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return fmt.Sprintf("%s://%s:%d", t.Scheme, host, t.port)
}

// parseURL accepts a URL only in the form that every parser reads in the same way.
func parseURL(s string) (t target, err error) {
	if len(s) > maxURL ||
		strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' }) {
		return t, fmt.Errorf("a URL is at most %d characters of ASCII without spaces or "+
			"backslashes", maxURL)
	}
	u, err := url.Parse(s)
	if err != nil || !strings.HasPrefix(s, "http://") && !strings.HasPrefix(s, "https://") {
		return t, fmt.Errorf("a URL begins with http:// or https://")
	}
	if u.User != nil || u.Opaque != "" || strings.Contains(s, "#") {
		return t, fmt.Errorf("a URL here holds no user name, password or fragment")
	}
	t = target{u, u.Hostname(), map[string]int{"http": 80, "https": 443}[u.Scheme]}
	if p := u.Port(); p != "" || strings.HasSuffix(u.Host, ":") {
		if t.port, err = strconv.Atoi(p); err != nil || t.port < 1 || t.port > 65535 ||
			strconv.Itoa(t.port) != p {
			return t, fmt.Errorf("the port of a URL is a plain number from 1 to 65535")
		}
	}
	if ip, err := netip.ParseAddr(t.host); err == nil {
		if ip.Zone() != "" || ip.Is4In6() || ip.String() != t.host {
			return t, fmt.Errorf("write the address as %s", ip.WithZone("").Unmap())
		}
		return t, nil
	}
	if len(t.host) > 253 || !hostForm.MatchString(t.host) {
		return t, fmt.Errorf("a host is a lower-case ASCII name (xn-- for others) without a " +
			"final dot, or an IP address in its shortest form")
	}
	return t, nil
}

// headers refuses headers that could be read in two ways.
func headers(list [][2]string) (http.Header, error) {
	h, size := http.Header{}, 0
	if len(list) > maxHeaders {
		return nil, fmt.Errorf("more than %d", maxHeaders)
	}
	for _, kv := range list {
		name, value := http.CanonicalHeaderKey(kv[0]), kv[1]
		if size += len(name) + len(value) + 4; size > maxHeaderBytes {
			return nil, fmt.Errorf("more than %d bytes", maxHeaderBytes)
		}
		if !headerForm.MatchString(name) {
			return nil, fmt.Errorf("%.64q is not a header name: want letters, digits and "+
				"dashes, which all servers read alike", kv[0])
		}
		if slices.Contains(forbidden, name) || strings.HasPrefix(name, "Proxy-") {
			return nil, fmt.Errorf("%s may be set only by the host", name)
		}
		if strings.Trim(value, " \t") != value || strings.ContainsFunc(value, control) {
			return nil, fmt.Errorf("the value of %s has control characters, or spaces around it",
				name)
		}
		if _, twice := h[name]; twice {
			return nil, fmt.Errorf("%s is there twice", name)
		}
		h[name] = []string{value}
	}
	return h, nil
}

func control(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

func safe(method string) bool { return method == http.MethodGet || method == http.MethodHead }

func origin(s string) (string, error) {
	t, err := parseURL(s)
	if err == nil && (t.Path != "" || t.RawQuery != "" || t.ForceQuery) {
		err = errors.New("an origin ends after its host or port")
	}
	if err != nil {
		return "", fmt.Errorf("%q: %w", s, err)
	}
	return t.origin(), nil
}
