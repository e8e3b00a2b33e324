package sandbox

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// turns share the processors between the guests that compute. Go's scheduler cannot: it neither
// preempts a guest nor sees which of them waited longest. So no more compute at once than there are
// processors; each gives way after a slice, at a tick, when others wait; and in the line a call is
// the further behind the more it has computed, within bounds, so that short calls pass bombs, and
// no crowd of short ones keeps a long one from its end. What a call does besides, as waiting for a
// node, takes no turn, and does not cost it its place before its slice is over: else who writes a
// thousand lines would wait a thousand times.
type turns struct {
	processors int
	now        func() time.Time

	mu        sync.Mutex // guards the following
	computing int
	line      []*waiter // a processor is free only when it is empty
}

type waiter struct {
	turn  chan struct{} // closed when it may compute
	place time.Time     // in the line: before those of later times
}

const (
	slice = 500 * time.Microsecond
	// times what it has computed is a call behind those that have not yet,
	behind = 4
	enough = 5 * time.Millisecond // but not more than for this much
)

func newTurns() *turns { return &turns{processors: runtime.GOMAXPROCS(0), now: time.Now} }

// next gives turns while processors are free.
func (t *turns) next() {
	for t.computing < t.processors && len(t.line) > 0 {
		first := 0
		for k, w := range t.line {
			if w.place.Before(t.line[first].place) {
				first = k
			}
		}
		close(t.line[first].turn)
		t.line = slices.Delete(t.line, first, first+1)
		t.computing++
	}
}

// wait returns when the one at that place may compute; or when ctx ends, and it is about to be
// stopped.
func (t *turns) wait(ctx context.Context, place time.Time) {
	w := &waiter{make(chan struct{}), place}
	t.mu.Lock()
	t.line = append(t.line, w)
	t.next()
	t.mu.Unlock()
	select {
	case <-w.turn:
		return
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := slices.Index(t.line, w); k >= 0 { // else it was given a turn meanwhile
		t.line = slices.Delete(t.line, k, k+1)
		t.computing++
	}
}

func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.computing--
	t.next()
}

func (t *turns) crowded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.line) > 0
}

// pace is how one call computes.
type pace struct {
	turns *turns
	in    bool // it has a turn,
	since time.Time
	ran   time.Duration // in earlier ones
	place time.Time     // its last one in the line,
	left  time.Duration // of the slice that goes with it
}

// enter waits for a turn.
func (p *pace) enter(ctx context.Context) {
	if p.left <= 0 {
		p.place, p.left = p.turns.now().Add(behind*min(p.ran, enough)), slice
	}
	p.turns.wait(ctx, p.place)
	p.in, p.since = true, p.turns.now()
}

// leave ends the turn, and reports whether there was one.
func (p *pace) leave() bool {
	if !p.in {
		return false
	}
	p.in = false
	d := p.turns.now().Sub(p.since)
	p.ran, p.left = p.ran+d, p.left-d
	p.turns.end()
	return true
}

// pass is called now and then while the guest computes, and lets others do so.
func (p *pace) pass(ctx context.Context) {
	switch {
	case !p.in || p.turns.now().Sub(p.since) < p.left:
	case p.turns.crowded():
		p.leave()
		p.enter(ctx)
	default:
		runtime.Gosched() // the host's own work may wait for a processor, too
	}
}
