package distribution

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
)

// repository returns a client that asks no other hosts than the registry's and those of o.Also,
// whatever the registry answers.
func (o Options) repository(r registry.Reference) (*remote.Repository, error) {
	if o.PlainHTTP && !loopback(r.Host()) {
		return nil, fmt.Errorf("%s is not on this machine: plain HTTP is for loopback only",
			r.Host())
	}
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 30 * time.Second,
		DialContext:     (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, DisableCompression: true}
	if len(o.CA) > 0 {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		if !roots.AppendCertsFromPEM(o.CA) {
			return nil, errors.New("the CA file holds no certificate (PEM)")
		}
		t.TLSClientConfig.RootCAs = roots
	}
	scheme := "https"
	if o.PlainHTTP {
		scheme = "http"
	}
	g := guard{next: t, own: origin(scheme, r.Host())}
	for _, host := range o.Also {
		g.also = append(g.also, origin("https", host))
	}
	return &remote.Repository{Reference: r, PlainHTTP: o.PlainHTTP, MaxMetadataBytes: 1 << 20,
		ReferrerListMaxPages: 2, SkipReferrersGC: true,
		Client: &auth.Client{Credential: o.Credential, Cache: auth.NewCache(),
			Client: &http.Client{Transport: g, CheckRedirect: few}}}, nil
}

func few(_ *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("the registry redirects more than %d times", maxRedirects)
	}
	return nil
}

// guard refuses requests to origins that the user has not named: a registry decides by redirects,
// by the address of its token service and by where uploads go what this machine connects to.
type guard struct {
	next http.RoundTripper
	own  string
	also []string
}

func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	to := origin(r.URL.Scheme, r.URL.Host)
	if to != g.own && !slices.Contains(g.also, to) {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, fmt.Errorf("the registry leads to %s, which was not asked for; if it "+
			"belongs to the registry, add --also %s", to, r.URL.Host)
	}
	return g.next.RoundTrip(r)
}

func origin(scheme, host string) string {
	u := url.URL{Scheme: scheme, Host: host}
	port := cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[scheme])
	return scheme + "://" + net.JoinHostPort(u.Hostname(), port)
}

func loopback(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
