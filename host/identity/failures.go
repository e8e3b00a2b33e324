package identity

import (
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

var errTooMany = errors.New("too many failed attempts from this address")

const (
	maxFailures   = 5 // a minute and address
	maxRemembered = 10_000
)

// address is who is at the other end of the connection; what headers claim about it does not count.
func address(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// failures counts wrong tokens by address; an IPv6 caller counts as its /64.
type failures struct {
	now func() time.Time

	mu   sync.Mutex // guards seen
	seen map[netip.Addr]window
}

type window struct {
	start time.Time
	n     int
}

func network(a netip.Addr) netip.Addr {
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}

// tooMany counts a failure and reports whether there have been too many.
func (f *failures) tooMany(a netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if len(f.seen) >= maxRemembered {
		for k, w := range f.seen {
			if now.Sub(w.start) >= time.Minute {
				delete(f.seen, k)
			}
		}
	}
	if f.seen == nil || len(f.seen) >= maxRemembered {
		f.seen = map[netip.Addr]window{}
	}
	w := f.seen[network(a)]
	if now.Sub(w.start) >= time.Minute {
		w = window{start: now}
	}
	w.n++
	f.seen[network(a)] = w
	return w.n > maxFailures
}
