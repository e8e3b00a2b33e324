package egress

import (
	"net/http"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// request is what will be sent, to one of the decided addresses.
type request struct {
	target
	method     string
	header     http.Header // without the credential
	body       []byte
	credential *Credential // nil for none
	addrs      []terms.Addr
}

// check reads a request as it will be sent. The error is a *terms.OpError.
func (e *Egress) check(op abi.HTTPRequest, tool string) (r request, err error) {
	bad := func(format string, args ...any) (request, error) {
		return request{}, terms.Fail("bad_request", format, args...)
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

// without returns the headers, except those for whose canonical name drop returns true.
func without(headers [][2]string, drop func(name string) bool) [][2]string {
	return slices.DeleteFunc(slices.Clone(headers),
		func(kv [2]string) bool { return drop(http.CanonicalHeaderKey(kv[0])) })
}

// next returns the operation to which a redirect leads. It returns false if the answer is the
// redirect itself, because the request did not ask for it, or because a body would go to another
// origin.
func next(
	op abi.HTTPRequest, from target, status int, location string,
) (abi.HTTPRequest, bool, error) {
	if !slices.Contains([]int{301, 302, 303, 307, 308}, status) || location == "" ||
		op.Hop >= op.MaxHops {
		return op, false, nil
	}
	to, err := from.Parse(location)
	if err != nil || len(location) > maxURL {
		return op, false, terms.Fail("bad_redirect",
			"%s answered %d with a location that is not a URL", from.origin(), status)
	}
	to.Fragment, to.RawFragment, to.Host = "", "", strings.ToLower(to.Host)
	t, err := parseURL(to.String())
	if err != nil {
		return op, false, terms.Fail("bad_redirect",
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

func (e *Egress) credential(name string) *Credential {
	if i := slices.IndexFunc(e.opts.Credentials,
		func(c Credential) bool { return c.Name == name }); i >= 0 {
		return &e.opts.Credentials[i]
	}
	return nil
}
