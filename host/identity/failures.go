package identity

import (
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

var errTooMany = errors.New("too many failed attempts from this address")

const (
	maxFailures   = 5 // a minute and address
	maxRemembered = 10_000
)

// address is the other end of the connection. Headers do not change it.
func address(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// failures limits wrong tokens by address; an IPv6 address counts as its /64.
type failures struct {
	now func() time.Time

	mu   sync.Mutex // guards seen
	seen map[netip.Addr]*rate.Limiter
}

// tooMany counts a failure and reports whether there have been too many.
func (f *failures) tooMany(a netip.Addr) bool {
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			a = p.Addr()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	if len(f.seen) >= maxRemembered {
		for k, l := range f.seen {
			if l.TokensAt(now) >= maxFailures {
				delete(f.seen, k)
			}
		}
	}
	if f.seen == nil || len(f.seen) >= maxRemembered {
		f.seen = map[netip.Addr]*rate.Limiter{}
	}
	l := f.seen[a]
	if l == nil {
		l = rate.NewLimiter(rate.Every(time.Minute/maxFailures), maxFailures)
		f.seen[a] = l
	}
	return !l.AllowN(now, 1)
}
