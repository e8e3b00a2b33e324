package sandbox

import (
	"cmp"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// breaker refuses the calls of a principal whose calls break a plugin again and again, so that they
// do not cost an instance each. It counts for each principal alone: a caller can break a plugin for
// nobody else. The zero principal is a principal like others.
type breaker struct {
	after int           // broken calls in a row; negative for never
	pause time.Duration // then no call is admitted, and one after it

	mu sync.Mutex // guards the following
	by map[string]*breaks
}

type breaks struct {
	n     int // in a row
	until time.Time
}

// maxBroken principals are remembered, unless more are out of service at once.
const maxBroken = 1000

// admit reports for how long calls of the principal are still refused, and how many broke in a row;
// 0 when they are not. When the pause is over it admits one call, and refuses the others for
// another pause unless that call succeeds.
func (b *breaker) admit(principal string) (left time.Duration, broken int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.by[principal]
	if p == nil || b.after < 0 || p.n < b.after {
		return 0, 0
	}
	if left = time.Until(p.until); left > 0 {
		return left, p.n
	}
	p.until = time.Now().Add(b.pause)
	return 0, 0
}

// record counts how a call ended, and reports whether the principal is refused from now on. Calls
// that ran out of time or memory do not count: that depends on what the caller asked for, and both
// are bounded for each principal.
func (b *breaker) record(principal string, err error) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	broke := (*terms.PluginError)(nil)
	switch {
	case err == nil:
		delete(b.by, principal)
		return false
	case !errors.As(err, &broke) || broke.Code == codeMemory:
		return false
	}
	switch {
	case b.by == nil:
		b.by = map[string]*breaks{}
	case len(b.by) >= maxBroken:
		maps.DeleteFunc(b.by, func(id string, old *breaks) bool {
			return id != principal && time.Now().After(old.until)
		})
	}
	p := cmp.Or(b.by[principal], &breaks{})
	b.by[principal] = p
	p.n++
	p.until = time.Now().Add(b.pause)
	return p.n == b.after
}
