package egress

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"code.dny.dev/ssrf"

	"github.com/caponier-mcp/caponier/host/terms"
)

// maxAddrs bounds the addresses of one name.
const maxAddrs = 16

// classes are the address classes that policy knows, the most specific first. An address in none of
// them that is not safe is "reserved".
var classes = []struct {
	name     string
	prefixes []netip.Prefix
}{
	{
		"metadata",
		prefixes("169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", "169.254.0.23/32",
			"100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::/32",
			"fd20:ce::254/128", "fe80::a9fe:a9fe/128"),
	},
	{"unspecified", prefixes("0.0.0.0/8", "::/128")},
	{"loopback", prefixes("127.0.0.0/8", "::1/128")},
	{"broadcast", prefixes("255.255.255.255/32")},
	{"linklocal", prefixes("169.254.0.0/16", "fe80::/10")},
	{"private", prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")},
	{"cgnat", prefixes("100.64.0.0/10")},
	{"multicast", prefixes("224.0.0.0/4", "ff00::/8")},
	{"nat64", prefixes("64:ff9b::/96", "64:ff9b:1::/48")},
}

var guardian = ssrf.New(ssrf.WithAnyPort())

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, t := range texts {
		all = append(all, netip.MustParsePrefix(t))
	}
	return all
}

// classify returns the class of an address. An IPv4 address that is mapped into IPv6 has the class
// of the IPv4 address.
func classify(ip netip.Addr) string {
	ip = ip.WithZone("").Unmap()
	for _, c := range classes {
		if slices.ContainsFunc(c.prefixes, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			return c.name
		}
	}
	if !ip.IsValid() || guardian.SafeAddr(ip) != nil {
		return "reserved"
	}
	return "global"
}

// resolve looks up every address of a host, once. Only addresses that policy sees may be dialled.
func (e *Egress) resolve(ctx context.Context, host string) ([]terms.Addr, error) {
	ip, err := netip.ParseAddr(host)
	ips := []netip.Addr{ip}
	if err != nil {
		if ips, err = e.opts.Resolve(ctx, host); err != nil {
			return nil, terms.Fail("dns", "the name %s was not resolved: %v", host, err)
		}
	}
	var addrs []terms.Addr
	for _, ip := range ips {
		a := terms.Addr{IP: ip.WithZone("").Unmap().String(), Class: classify(ip)}
		if !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	if len(addrs) == 0 || len(addrs) > maxAddrs {
		return nil, terms.Fail("dns", "the name %s has %d addresses, want 1 to %d", host,
			len(addrs),
			maxAddrs)
	}
	return addrs, nil
}

// decided returns an error unless an address about to be dialled was decided, in the same class.
// network and address are those of net.Dialer.Control, which the kernel receives.
func decided(addrs []terms.Addr, network, address string, port int) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("dialling %s %s: not an address", network, address)
	}
	ip := ap.Addr().WithZone("").Unmap()
	if int(ap.Port()) != port ||
		!slices.Contains(addrs, terms.Addr{IP: ip.String(), Class: classify(ip)}) {
		return fmt.Errorf("dialling %s: it is not what was decided", address)
	}
	return nil
}
