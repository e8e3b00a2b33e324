// Package fair shares a limited number of slots between principals.
package fair

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

// Shares is a number of slots. Each principal may hold a part of them. Waiters are served in fair
// order: the principal that holds the fewest slots first, then the one served longest ago. One
// principal's waiters are served in the order in which they came. A slot can represent a call, a
// connection or a byte. The zero value has no slots. Shares is safe for concurrent use.
type Shares struct {
	mu    sync.Mutex // guards the following
	slots int
	each  int
	used  int
	turn  uint64 // rises with each arrival and each grant
	of    map[string]*share
}

// share is what one principal holds and waits for. It exists only while one of these is not zero.
type share struct {
	held    int
	turn    uint64 // of the latest grant, or of the arrival
	waiters []chan struct{}
}

// New returns slots of which one principal may hold at most each.
func New(slots, each int) *Shares { return &Shares{slots: slots, each: each} }

// Half returns the share of n slots that leaves as many to others, and at least one.
func Half(n int) int { return max((n+1)/2, 1) }

// Processors returns a slot for each processor of this process, of which one principal may hold
// half.
func Processors() *Shares {
	n := runtime.GOMAXPROCS(0)
	return New(n, Half(n))
}

// TryAcquire takes one slot for the principal and reports whether there was one.
func (s *Shares) TryAcquire(principal string) bool { return s.TryAcquireN(principal, 1) }

// TryAcquireN takes n slots, all or none, and reports whether it did. An n below 0 takes none.
func (s *Shares) TryAcquireN(principal string, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := 0
	if p := s.of[principal]; p != nil {
		held = p.held
	}
	// Subtractions cannot overflow.
	if n < 0 || n > s.slots-s.used || n > s.each-held {
		return false
	}
	s.grant(s.share(principal), n)
	s.tidy(principal)
	return true
}

// Acquire waits for one slot. It returns the cause of ctx if that ends first; then no slot is held.
func (s *Shares) Acquire(ctx context.Context, principal string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	p := s.share(principal)
	mine := make(chan struct{})
	p.waiters = append(p.waiters, mine)
	s.serve()
	s.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(p.waiters, mine); at >= 0 {
		p.waiters = slices.Delete(p.waiters, at, at+1)
		s.tidy(principal)
	} else { // it was granted at the same moment
		s.release(principal, 1)
	}
	return context.Cause(ctx)
}

// Release returns one slot.
func (s *Shares) Release(principal string) { s.ReleaseN(principal, 1) }

// ReleaseN returns n slots. It panics if the principal holds fewer.
func (s *Shares) ReleaseN(principal string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(principal, n)
}

// Resize changes the number of slots and the most that one principal may hold. Slots that are held
// stay held, also above the new numbers.
func (s *Shares) Resize(slots, each int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots, s.each = slots, each
	s.serve()
}

// Held returns the number of slots in use and the number of waiters.
func (s *Shares) Held() (used, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.of {
		waiting += len(p.waiters)
	}
	return s.used, waiting
}

func (s *Shares) share(principal string) *share {
	p := s.of[principal]
	if p == nil {
		if s.of == nil {
			s.of = map[string]*share{}
		}
		s.turn++
		p = &share{turn: s.turn}
		s.of[principal] = p
	}
	return p
}

func (s *Shares) grant(p *share, n int) {
	s.turn++
	s.used, p.held, p.turn = s.used+n, p.held+n, s.turn
}

func (s *Shares) release(principal string, n int) {
	if n == 0 {
		return
	}
	p := s.of[principal]
	if p == nil || n < 0 || n > p.held {
		panic("fair: released more slots than the principal holds")
	}
	s.used, p.held = s.used-n, p.held-n
	s.tidy(principal)
	s.serve()
}

// tidy forgets a principal that neither holds a slot nor waits for one.
func (s *Shares) tidy(principal string) {
	if p := s.of[principal]; p.held == 0 && len(p.waiters) == 0 {
		delete(s.of, principal)
	}
}

// serve grants free slots to waiters for as long as one of them may have one.
func (s *Shares) serve() {
	for s.used < s.slots {
		var next *share
		for _, p := range s.of {
			if len(p.waiters) > 0 && p.held < s.each && (next == nil || p.held < next.held ||
				p.held == next.held && p.turn < next.turn) {
				next = p
			}
		}
		if next == nil {
			return
		}
		close(next.waiters[0])
		next.waiters = next.waiters[1:]
		s.grant(next, 1)
	}
}
