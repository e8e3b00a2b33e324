package egress

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
)

// unusable are the classes of addresses that a configuration must not name.
var unusable = []string{"metadata", "linklocal", "multicast", "broadcast", "unspecified",
	"reserved", "nat64"}

// Client is for requests of the host itself, to an address that its operator configured, such as an
// identity provider. It verifies certificates, follows no redirects, uses no proxy, keeps no
// cookies, and reads at most max_body of a body. It never dials metadata or link-local addresses.
func (e *Egress) Client() *http.Client {
	d := net.Dialer{
		Timeout: e.opts.Timeout,
		Control: func(_, address string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(address)
			if err != nil || slices.Contains(unusable, classify(ap.Addr())) {
				return errors.New("dialling " + address + ": no host of this network may be there")
			}
			return nil
		},
	}
	t := &http.Transport{DialContext: d.DialContext, MaxResponseHeaderBytes: maxHead,
		ForceAttemptHTTP2: true, IdleConnTimeout: e.opts.Timeout,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: e.roots}}
	return &http.Client{Transport: bounded{t, e.opts.MaxBody}, Timeout: e.opts.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
}

// bounded ends bodies with an error when they are longer than max.
type bounded struct {
	*http.Transport
	max int64
}

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.Transport.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, b.max)
	}
	return resp, err
}
