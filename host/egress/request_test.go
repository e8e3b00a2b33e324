package egress

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// never are the classes that policy refuses whatever the site lists
// (policies/core/check/egress.rego).
var never = map[string]bool{"linklocal": true, "metadata": true, "multicast": true,
	"broadcast": true, "unspecified": true, "reserved": true, "nat64": true}

func TestClasses(t *testing.T) {
	for class, addrs := range map[string]string{
		"global":   "1.1.1.1 8.8.8.8 93.184.215.14 2606:4700:4700::1111 ::ffff:1.1.1.1",
		"loopback": "127.0.0.1 127.255.255.254 ::1 ::ffff:127.0.0.1",
		"private": "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 fc00::1 fd12:3456::1 " +
			"::ffff:10.0.0.1",
		"cgnat":     "100.64.0.1 100.127.255.255",
		"linklocal": "169.254.1.1 fe80::1 ::ffff:169.254.1.1",
		"metadata": "169.254.169.254 ::ffff:169.254.169.254 fd00:ec2::254 fd00:ec2::23 " +
			"100.100.100.200 169.254.170.2 168.63.129.16 192.0.0.192 fd20:ce::254",
		"multicast":   "224.0.0.1 239.255.255.250 ff02::1",
		"broadcast":   "255.255.255.255",
		"unspecified": "0.0.0.0 0.1.2.3 ::",
		"nat64":       "64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::1",
		"reserved": "192.0.0.1 192.0.2.1 192.31.196.1 192.52.193.1 192.88.99.1 192.175.48.1 " +
			"198.18.0.1 198.51.100.1 203.0.113.1 240.0.0.1 2001::1 2001:db8::1 2002:7f00:1::1 " +
			"2002:a9fe:a9fe:: 2620:4f:8000::1 3fff::1 5f00::1 fec0::1 100::1 ::127.0.0.1 " +
			"::ffff:0:127.0.0.1 4000::1",
	} {
		for _, a := range strings.Fields(addrs) {
			if got := classify(netip.MustParseAddr(a)); got != class {
				t.Errorf("%s is %s, want %s", a, got, class)
			}
		}
	}
	if got := classify(netip.Addr{}); !never[got] {
		t.Errorf("no address is %q, which policy may let pass", got)
	}
}

// However the address of the metadata service is written, it is refused as it stands or has a class
// that is never let pass.
func TestMetadataAddressesInAllSpellings(t *testing.T) {
	for _, host := range strings.Fields("169.254.169.254 169.254.169.254. 2852039166 0xa9fea9fe " +
		"0xA9.0xFE.0xA9.0xFE 0251.0376.0251.0376 025177524776 169.254.43518 169.16689662 " +
		"[::ffff:169.254.169.254] [::ffff:a9fe:a9fe] [0:0:0:0:0:ffff:a9fe:a9fe] [::a9fe:a9fe] " +
		"[64:ff9b::a9fe:a9fe] [64:ff9b::169.254.169.254] [2002:a9fe:a9fe::] [fd00:ec2::254] " +
		"[FD00:EC2::254] " +
		"[fd00:0ec2::254] [fe80::a9fe:a9fe%25eth0] [::ffff:169.254.169.254%25lo] " +
		"169%2e254%2e169%2e254 %31%36%39.254.169.254 ①⑥⑨.254.169.254 169。254。169。254 " +
		"169.254.169.254%00.example " +
		"user@169.254.169.254 169.254.169.254:80@a.example 169.254.169.254\\@a.example " +
		"METADATA.google.internal 100.100.100.200 168.63.129.16") {
		tg, err := parseURL("http://" + host + "/latest/meta-data/")
		if err != nil {
			continue
		}
		e := &Egress{opts: Options{Resolve: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("169.254.169.254")}, nil
		}}}
		addrs, err := e.resolve(context.Background(), tg.host)
		if err != nil || len(addrs) != 1 || !never[addrs[0].Class] {
			t.Errorf("%s goes to %v, %v", host, addrs, err)
		}
	}
}

func TestEveryAddressOfANameIsResolved(t *testing.T) {
	ips := []netip.Addr{netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("::ffff:1.1.1.1"),
		netip.MustParseAddr("10.0.0.1")}
	e := &Egress{
		opts: Options{
			Resolve: func(context.Context, string) ([]netip.Addr, error) { return ips, nil }},
	}
	addrs, err := e.resolve(context.Background(), "a.example")
	if err != nil || len(addrs) != 2 || addrs[1] != (terms.Addr{IP: "10.0.0.1", Class: "private"}) {
		t.Errorf("got %v, %v; want the public one once and the private one", addrs, err)
	}
	for i := range byte(maxAddrs) {
		ips = append(ips, netip.AddrFrom4([4]byte{1, 1, 2, i}))
	}
	_, err = e.resolve(context.Background(), "a.example")
	failedWith(t, err, "dns", "want 1 to 16", terms.Failed)
	ips = nil
	_, err = e.resolve(context.Background(), "a.example")
	failedWith(t, err, "dns", "0 addresses", terms.Failed)
}

func TestRequestsWithTwoMeaningsAreRefused(t *testing.T) {
	e, err := New(
		Options{
			Ledger: &world{},
			Credentials: []Credential{
				{Name: "c", Origins: []string{"https://a.example"}, Tools: []string{"curl"},
					Secret: "12345678"},
			},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	const u = "https://a.example/"
	h := func(kv ...string) (l [][2]string) {
		for i := 0; i < len(kv); i += 2 {
			l = append(l, [2]string{kv[i], kv[i+1]})
		}
		return l
	}
	for name, tt := range map[string]struct {
		op    abi.HTTPRequest
		words string
	}{
		"a line end in a value": {abi.HTTPRequest{Method: "GET", URL: u,
			Headers: h("X", "a\r\nHost: b")}, "control characters"},
		"a lone line feed": {abi.HTTPRequest{Method: "GET", URL: u,
			Headers: h("X", "a\nb")}, "control characters"},
		"a NUL": {abi.HTTPRequest{Method: "GET", URL: u,
			Headers: h("X", "a\x00")}, "control characters"},
		"a line end in a name": {abi.HTTPRequest{Method: "GET", URL: u,
			Headers: h("X\r\nHost", "b")}, "not a header name"},
		"a colon in a name": {abi.HTTPRequest{Method: "GET", URL: u,
			Headers: h("X:", "b")}, "not a header name"},
		"a space after a name": {abi.HTTPRequest{Method: "GET", URL: u,
			Headers: h("Host ", "b")}, "not a header name"},
		"no name": {abi.HTTPRequest{Method: "GET", URL: u,
			Headers: h("", "b")}, "not a header name"},
		"the host": {abi.HTTPRequest{Method: "GET", URL: u,
			Headers: h("hOsT", "b")}, "Host may be set only by the host"},
		"a length": {abi.HTTPRequest{Method: "POST", URL: u,
			Headers: h("Content-Length", "1")}, "may be set only by the host"},
		"a transfer encoding": {abi.HTTPRequest{Method: "POST", URL: u,
			Headers: h("transfer-encoding", "chunked")}, "may be set only by the host"},
		"a header for proxies": {abi.HTTPRequest{Method: "GET", URL: u,
			Headers: h("Proxy-Authorization", "b")}, "may be set only by the host"},
		"a method in a header": {abi.HTTPRequest{Method: "GET", URL: u,
			Headers: h("X-HTTP-Method-Override", "DELETE")}, "may be set only by the host"},
		"a method that a proxy forwards": {abi.HTTPRequest{Method: "GET", URL: u,
			Headers: h("x-forwarded-method",
				"DELETE")}, "X-Forwarded-Method may be set only by the host"},
		"a method that was the original": {abi.HTTPRequest{Method: "GET", URL: u,
			Headers: h("X-Original-Method",
				"DELETE")}, "X-Original-Method may be set only by the host"},
		"a method behind underscores": {abi.HTTPRequest{Method: "GET", URL: u,
			Headers: h("X_HTTP_Method_Override", "DELETE")}, "not a header name"},
		"a method behind dots": {abi.HTTPRequest{Method: "GET", URL: u,
			Headers: h("X.HTTP.Method.Override", "DELETE")}, "not a header name"},
		"a length behind an underscore": {abi.HTTPRequest{Method: "POST", URL: u,
			Headers: h("Content_Length", "1")}, "not a header name"},
		"a header that is there twice": {abi.HTTPRequest{Method: "GET", URL: u,
			Headers: h("x-a", "1", "X-A", "2")}, "there twice"},
		"too many headers": {abi.HTTPRequest{Method: "GET", URL: u,
			Headers: make([][2]string, maxHeaders+1)}, "more than 64"},
		"headers that are too long": {abi.HTTPRequest{Method: "GET", URL: u,
			Headers: h("X", strings.Repeat("x", maxHeaderBytes))}, "more than 16384 bytes"},
		"a GET with a body": {abi.HTTPRequest{Method: "GET", URL: u,
			Data: abi.Data{Text: "x"}}, "has no body"},
		"a method in lower case": {abi.HTTPRequest{Method: "get", URL: u}, "method"},
		"CONNECT":                {abi.HTTPRequest{Method: "CONNECT", URL: u}, "method"},
		"two methods": {abi.HTTPRequest{Method: "GET / HTTP/1.1\r\nX: ",
			URL: u}, "method"},
		"text and base64": {abi.HTTPRequest{Method: "POST", URL: u,
			Data: abi.Data{Text: "x", B64: "eA=="}}, "body"},
		"a fragment": {abi.HTTPRequest{Method: "GET", URL: u + "#x"},
			"fragment"},
		"a password": {abi.HTTPRequest{Method: "GET",
			URL: "https://u:p@a.example/"}, "user name"},
		"a host in upper case": {abi.HTTPRequest{Method: "GET",
			URL: "https://A.example/"}, "lower-case"},
		"a final dot": {abi.HTTPRequest{Method: "GET",
			URL: "https://a.example./"}, "final dot"},
		"another protocol": {abi.HTTPRequest{Method: "GET",
			URL: "file:///etc/passwd"}, "http://"},
		"a share of Windows": {abi.HTTPRequest{Method: "GET", URL: `\\server\share`},
			"backslashes"},
		"a space": {abi.HTTPRequest{Method: "GET",
			URL: "https://a.example/ HTTP/1.1"}, "spaces"},
		"no host": {abi.HTTPRequest{Method: "GET", URL: "https:///x"},
			"a host is"},
		"a port of no number": {abi.HTTPRequest{Method: "GET",
			URL: "https://a.example:/"}, "port"},
		"a port with a zero before it": {abi.HTTPRequest{Method: "GET",
			URL: "https://a.example:0443/"}, "port"},
		"a port that is none": {abi.HTTPRequest{Method: "GET",
			URL: "https://a.example:70000/"}, "port"},
		"a mapped address": {abi.HTTPRequest{Method: "GET",
			URL: "http://[::ffff:1.2.3.4]/"}, "1.2.3.4"},
		"a negative reserve": {abi.HTTPRequest{Method: "GET", URL: u,
			ReserveUSDMicros: -1}, "negative"},
		"a credential that is not there": {abi.HTTPRequest{Method: "GET", URL: u, Credential: "d"},
			`none named "d"`},
		"a credential for another origin": {abi.HTTPRequest{Method: "GET",
			URL: "https://b.example/", Credential: "c"}, "https://b.example:443"},
		"a credential without TLS": {abi.HTTPRequest{Method: "GET", URL: "http://a.example/",
			Credential: "c"}, "http://a.example:80"},
		"a credential's header": {abi.HTTPRequest{Method: "GET", URL: u, Credential: "c",
			Headers: h("authorization", "x")}, "is the credential's"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := e.check(tt.op, "curl")
			failedWith(t, err, "bad_request", tt.words, terms.Failed)
		})
	}
	if _, err := e.check(abi.HTTPRequest{Method: "GET", URL: u, Credential: "c"},
		"curl"); err != nil {
		t.Error(err)
	}
	_, err = e.check(abi.HTTPRequest{Method: "GET", URL: u, Credential: "c"}, "llm_query")
	failedWith(t, err, "bad_request", "for the tool llm_query", terms.Failed)
}

// A URL that is accepted has one host, to every reader: its own text, read again, goes to the same
// place.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"http://a.example/", "https://[::1]:8443/x?y", "http://127.0.0.1:80",
		"http://0x7f.1/", "http://a@b/", "https://a.example:443//x", "http://[fe80::1%25a]/", "http://a/%2f..", "http://a?b#c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tg, err := parseURL(s)
		if err != nil {
			return
		}
		u, err := url.Parse(tg.String())
		if err != nil || u.Hostname() != tg.host || u.User != nil || u.Fragment != "" ||
			strings.ToLower(tg.host) != tg.host {
			t.Fatalf("%q is %+v, and read again %+v, %v", s, tg, u, err)
		}
		text := tg.origin() + tg.RequestURI()
		if len(text) > maxURL {
			return // its port and its escapes make it longer than s
		}
		again, err := parseURL(text)
		if err != nil || again.origin() != tg.origin() || again.RequestURI() != tg.RequestURI() {
			t.Fatalf("%q goes to %s%s, and read again to %s%s, %v", s, tg.origin(), tg.RequestURI(),
				again.origin(), again.RequestURI(), err)
		}
		if ip := net.ParseIP(tg.host); (ip != nil) != func() bool {
			_,
				err := netip.ParseAddr(tg.host)
			return err == nil
		}() {
			t.Fatalf("%q: two readers differ about whether %q is an address", s, tg.host)
		}
	})
}

// A header that is accepted is one line on the wire, and reads back as what it was.
func FuzzHeaders(f *testing.F) {
	for _, s := range [][2]string{{"X", "y"}, {"X\r\nY", "z"}, {"X", "a\nB: c"}, {"Host", "a"},
		{"X", " a"}, {"content-length", "1"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		h, err := headers([][2]string{{name, value}})
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := h.Write(&b); err != nil || strings.Count(b.String(), "\n") != 1 ||
			strings.Count(b.String(), "\r") != 1 {
			t.Fatalf("%q: %q became %q, %v", name, value, b.String(), err)
		}
		if n, v, _ := strings.Cut(strings.TrimSuffix(b.String(), "\r\n"),
			": "); n != http.CanonicalHeaderKey(
			name) ||
			v != value {
			t.Fatalf("%q: %q became %q", name, value, b.String())
		}
	})
}
