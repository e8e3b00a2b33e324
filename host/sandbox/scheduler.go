package sandbox

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// cpuScheduler shares the processors between the instances that compute. Go's scheduler cannot: it
// does not preempt an instance, and does not know which one has waited longest.
//
// At most as many instances compute at once as there are processors. Each yields after a slice, at
// a tick, when others wait. Waiting turns are ordered by the time at which they began to wait, plus
// a delay that grows with what the call has computed, within bounds: short calls overtake long
// ones, and a stream of short calls cannot keep a long one waiting for ever. What a call does
// besides, such as waiting for a node, takes no turn and does not end its slice: otherwise a call
// that writes a thousand log lines would wait a thousand times.
type cpuScheduler struct {
	processors int
	now        func() time.Time

	mu        sync.Mutex // guards the following
	computing int
	queue     []*cpuWaiter // not empty only while all processors are taken
}

type cpuWaiter struct {
	turn  chan struct{} // closed when it may compute
	place time.Time     // the smallest is next
}

const (
	slice = 500 * time.Microsecond
	// a waiting call is delayed by this many times what it has computed,
	delayFactor = 4
	maxDelayed  = 5 * time.Millisecond // of which no more counts than this
)

func newCPUScheduler() *cpuScheduler {
	return &cpuScheduler{processors: runtime.GOMAXPROCS(0), now: time.Now}
}

// next gives turns while processors are free. It is called with mu held.
func (s *cpuScheduler) next() {
	for s.computing < s.processors && len(s.queue) > 0 {
		first := slices.MinFunc(s.queue, func(a, b *cpuWaiter) int {
			return a.place.Compare(b.place)
		})
		close(first.turn)
		k := slices.Index(s.queue, first)
		s.queue = slices.Delete(s.queue, k, k+1)
		s.computing++
	}
}

// wait returns when the waiter at that place may compute. It also returns when ctx ends: the
// instance is then about to be stopped.
func (s *cpuScheduler) wait(ctx context.Context, place time.Time) {
	w := &cpuWaiter{make(chan struct{}), place}
	s.mu.Lock()
	s.queue = append(s.queue, w)
	s.next()
	s.mu.Unlock()
	select {
	case <-w.turn:
		return
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := slices.Index(s.queue, w); k >= 0 { // else it was given a turn meanwhile
		s.queue = slices.Delete(s.queue, k, k+1)
		s.computing++
	}
}

func (s *cpuScheduler) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.computing--
	s.next()
}

func (s *cpuScheduler) crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) > 0
}

// cpuTurn is one call's use of the processors. It is not safe for concurrent use.
type cpuTurn struct {
	scheduler *cpuScheduler
	computing bool
	since     time.Time     // of the present turn
	ran       time.Duration // in earlier turns
	place     time.Time     // the last one in the queue
	left      time.Duration // of the slice that goes with it
}

// begin waits for a turn.
func (t *cpuTurn) begin(ctx context.Context) {
	if t.left <= 0 {
		t.place = t.scheduler.now().Add(delayFactor * min(t.ran, maxDelayed))
		t.left = slice
	}
	t.scheduler.wait(ctx, t.place)
	t.computing, t.since = true, t.scheduler.now()
}

// end ends the turn, and reports whether there was one.
func (t *cpuTurn) end() bool {
	if !t.computing {
		return false
	}
	t.computing = false
	d := t.scheduler.now().Sub(t.since)
	t.ran += d
	t.left -= d
	t.scheduler.end()
	return true
}

// yield is called at every tick. It lets others compute when the slice is over.
func (t *cpuTurn) yield(ctx context.Context) {
	switch {
	case !t.computing || t.scheduler.now().Sub(t.since) < t.left:
	case t.scheduler.crowded():
		t.end()
		t.begin(ctx)
	default:
		runtime.Gosched() // the host's own work may wait for a processor, too
	}
}
