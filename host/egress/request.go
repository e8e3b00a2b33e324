package egress

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

const (
	maxURL         = 8192
	maxHeaders     = 64
	maxHeaderBytes = 16 << 10
)

// methods are those that a site can list. GET and HEAD are green, so they must stay what they say.
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
	// What frames a request or steers a proxy is the host's; a method that hides in a header would
	// not be the one that was decided.
	forbidden = strings.Fields(`Host Connection Content-Length Transfer-Encoding Te Trailer Upgrade
		Keep-Alive Expect Accept-Encoding X-Http-Method X-Http-Method-Override X-Method-Override
		X-Forwarded-Method X-Original-Method X-Original-Url X-Rewrite-Url`)
	// What goes along to another origin.
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

// parseURL accepts a URL only in the form that has one meaning to everybody.
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

// request is what will be sent, to one of the decided addresses.
type request struct {
	target
	method     string
	header     http.Header // without the credential
	body       []byte
	credential *Credential // nil for none
	addrs      []gate.Addr
}

// check reads a request as it will be sent. The error is a *gate.OpError.
func (e *Egress) check(op abi.HTTPRequest, tool string) (r request, err error) {
	bad := func(format string, args ...any) (request, error) {
		return request{}, fail("bad_request", format, args...)
	}
	r.method = op.Method
	if r.target, err = parseURL(op.URL); err != nil {
		return bad("url: %v", err)
	}
	if !slices.Contains(methods, op.Method) {
		return bad("method: want one of %s", strings.Join(methods, " "))
	}
	if r.body, err = op.Bytes(); err != nil {
		return bad("body: %v", err)
	}
	if safe(op.Method) && len(r.body) > 0 {
		return bad("a %s request has no body", op.Method)
	}
	if op.MaxHops < 0 || op.MaxBytes < 0 || op.ReserveUSDMicros < 0 {
		return bad("max_hops, max_bytes and reserve_usd_micros must not be negative")
	}
	if r.header, err = headers(op.Headers); err != nil {
		return bad("headers: %v", err)
	}
	if op.Credential == "" {
		return r, nil
	}
	c := e.credential(op.Credential)
	if c == nil || !slices.Contains(c.Tools, tool) || !slices.Contains(c.origins, r.origin()) {
		return bad("credential: there is none named %q for the tool %s at %s (egress.credentials)",
			op.Credential, tool, r.origin())
	}
	if _, given := r.header[c.Header]; given {
		return bad("headers: %s is the credential's", c.Header)
	}
	r.credential = c
	return r, nil
}

// headers refuses whatever could be read in two ways.
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
			return nil, fmt.Errorf("%s is set by the host alone", name)
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

// without returns the headers without those whose canonical name drop reports.
func without(headers [][2]string, drop func(name string) bool) [][2]string {
	return slices.DeleteFunc(slices.Clone(headers),
		func(kv [2]string) bool { return drop(http.CanonicalHeaderKey(kv[0])) })
}

func safe(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// next is the operation that a redirect leads to, or false when the answer is the redirect itself:
// it was not asked to be followed, or it would carry a body to another origin.
func next(
	op abi.HTTPRequest, from target, status int, location string,
) (abi.HTTPRequest, bool, error) {
	if !slices.Contains([]int{301, 302, 303, 307, 308}, status) || location == "" ||
		op.Hop >= op.MaxHops {
		return op, false, nil
	}
	to, err := from.Parse(location)
	if err != nil || len(location) > maxURL {
		return op, false, fail("bad_redirect", "%s answered %d with a location that is not a URL",
			from.origin(), status)
	}
	to.Fragment, to.RawFragment, to.Host = "", "", strings.ToLower(to.Host)
	t, err := parseURL(to.String())
	if err != nil {
		return op, false, fail("bad_redirect",
			"%s answered %d with a location that cannot be followed: %v", from.origin(), status,
			err)
	}
	if !safe(op.Method) && (status == 303 || op.Method == http.MethodPost && status < 303) {
		op.Method, op.Data = http.MethodGet, abi.Data{}
		op.Headers = without(op.Headers,
			func(name string) bool { return strings.HasPrefix(name, "Content-") })
	}
	if t.origin() != from.origin() {
		if !safe(op.Method) {
			return op, false, nil
		}
		op.Credential = ""
		op.Headers = without(op.Headers,
			func(name string) bool { return !slices.Contains(harmless, name) })
	}
	op.Hops = append(slices.Clone(op.Hops), abi.Hop{Status: status, URL: op.URL})
	op.URL, op.Hop = to.String(), op.Hop+1
	return op, true, nil
}
