package sandbox

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

func (s *cpuScheduler) idle() bool {
	computing, waiting := s.state()
	return computing == 0 && waiting == 0
}

// soon waits until is returns true, for at most 10 s.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("waited in vain until ", what)
		}
	}
}

func (s *cpuScheduler) state() (computing, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.computing, len(s.queue)
}

// TestCallsThatComputedLeastAreFirst checks the order of the queue: no call is behind one that
// arrived much later.
func TestCallsThatComputedLeastAreFirst(t *testing.T) {
	now := time.Unix(0, 0) // moved below only
	scheduler := &cpuScheduler{processors: 1, now: func() time.Time { return now }}
	first := &cpuTurn{scheduler: scheduler}
	first.begin(t.Context())
	var mu sync.Mutex
	var order []string
	var wg sync.WaitGroup
	arrive := func(name string, ran time.Duration) {
		_, before := scheduler.state()
		wg.Go(func() {
			p := &cpuTurn{scheduler: scheduler, ran: ran}
			p.begin(t.Context())
			mu.Lock()
			order = append(order, name)
			mu.Unlock()
			p.end()
		})
		soon(
			t,
			name+" waits",
			func() bool { _, waiting := scheduler.state(); return waiting == before+1 },
		)
	}
	arrive("an hour", time.Hour)
	arrive("some", 4*time.Millisecond)
	arrive("none", 0)
	now = now.Add(1)
	arrive("none, later", 0)
	now = now.Add(delayFactor*maxDelayed + 1) // even the longest is before later ones
	arrive("none, much later", 0)
	first.end()
	wg.Wait()
	if want := []string{
		"none", "none, later", "some", "an hour", "none, much later",
	}; !slices.Equal(order, want) {
		t.Errorf("they computed in the order %q, want %q", order, want)
	}
	if computing, waiting := scheduler.state(); computing != 0 || waiting != 0 {
		t.Errorf("%d compute and %d wait at the end", computing, waiting)
	}
}

// TestAPauseKeepsThePlaceInTheQueue checks that a call that waits for a node, or writes a line,
// comes back to its place until its slice is over.
func TestAPauseKeepsThePlaceInTheQueue(t *testing.T) {
	now := time.Unix(0, 0)
	scheduler := &cpuScheduler{processors: 1, now: func() time.Time { return now }}
	often, other := &cpuTurn{scheduler: scheduler}, &cpuTurn{scheduler: scheduler}
	for _, c := range []struct {
		computes time.Duration
		first    bool
	}{{slice / 2, true}, {slice / 4, true}, {slice / 2, false}, {slice / 2, true}} {
		often.begin(t.Context())
		now = now.Add(c.computes)
		often.end()
		other.begin(t.Context())
		order := make(chan string, 2)
		var wg sync.WaitGroup
		for k, p := range []*cpuTurn{{scheduler: scheduler}, often} {
			wg.Go(func() {
				p.begin(t.Context())
				order <- []string{"newcomer", "often"}[k]
				p.end()
			})
			soon(t, "it waits", func() bool { _, n := scheduler.state(); return n == k+1 })
		}
		other.end()
		wg.Wait()
		if first := <-order; (first == "often") != c.first {
			t.Errorf("after another %s the %s was first", c.computes, first)
		}
		now = now.Add(delayFactor * maxDelayed)
	}
	if computing, waiting := scheduler.state(); computing != 0 || waiting != 0 {
		t.Errorf("%d compute and %d wait at the end", computing, waiting)
	}
}

// TestAnInstanceYieldsAfterAnImportWhenItsSliceIsOver, however few bytes the import was for: notes
// that are not JSON cost the host 0.2 ms for each 4 KiB.
func TestAnInstanceYieldsAfterAnImportWhenItsSliceIsOver(t *testing.T) {
	now := time.Unix(0, 0)
	scheduler := &cpuScheduler{processors: 1, now: func() time.Time { return now }}
	c := &call{turn: cpuTurn{scheduler: scheduler}}
	c.turn.begin(t.Context())
	now = now.Add(slice)
	passed := false
	var wg sync.WaitGroup
	wg.Go(func() {
		other := &cpuTurn{scheduler: c.turn.scheduler}
		other.begin(t.Context())
		passed = true
		other.end()
	})
	soon(
		t,
		"another waits",
		func() bool { _, waiting := c.turn.scheduler.state(); return waiting == 1 },
	)
	c.charge(1)
	c.settle(t.Context())
	if computing, waiting := c.turn.scheduler.state(); waiting > 0 || computing != 1 {
		t.Errorf("%d compute and %d still wait", computing, waiting)
	}
	c.turn.end()
	if wg.Wait(); !passed {
		t.Error("the other had no turn")
	}
}

// TestAtMostAsManyComputeAsThereAreProcessors, and each one that yields comes to its end.
func TestAtMostAsManyComputeAsThereAreProcessors(t *testing.T) {
	scheduler := &cpuScheduler{processors: 3, now: time.Now}
	var now, most atomic.Int64
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			p := &cpuTurn{scheduler: scheduler}
			p.begin(t.Context())
			for until := time.Now().Add(
				20 * time.Millisecond); time.Now().Before(until); p.yield(t.Context()) {
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(time.Millisecond)
				now.Add(-1)
			}
			p.end()
			p.end() // again, as after a panic in an operation
		})
	}
	wg.Wait()
	if most.Load() > 3 {
		t.Errorf("%d computed at once on 3 processors", most.Load())
	}
	if computing, waiting := scheduler.state(); computing != 0 || waiting != 0 {
		t.Errorf("%d compute and %d wait at the end", computing, waiting)
	}
}

// TestTheWaitForATurnEndsWithTheCall, and nothing is left of a call that was stopped there.
func TestTheWaitForATurnEndsWithTheCall(t *testing.T) {
	scheduler := &cpuScheduler{processors: 1, now: time.Now}
	first := &cpuTurn{scheduler: scheduler}
	first.begin(t.Context())
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Microsecond)
		p := &cpuTurn{scheduler: scheduler}
		p.begin(ctx)
		p.end()
		cancel()
	}
	if computing, waiting := scheduler.state(); computing != 1 || waiting != 0 {
		t.Errorf("%d compute and %d wait beside none but the first", computing, waiting)
	}
}

// TestWaitingForANodeTakesNoTurn checks that calls that hang in operations, and those that sleep,
// leave all processors to others.
func TestWaitingForANodeTakesNoTurn(t *testing.T) {
	h := newHost(t, Options{})
	release := make(chan struct{})
	h.execute = func(terms.Question) (terms.Result, error) { <-release; return terms.Result{}, nil }
	hanging, sleeping := h.add(asker("stage", requests["stage"]).bytes()), h.add(sleeper().bytes())
	sleeping.Budget = 500 * time.Millisecond
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { want(t, h.call(hanging, object{}), "") })
		wg.Go(func() { want(t, h.call(sleeping, object{}), "budget") })
	}
	soon(t, "all hang or sleep", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		computing, waiting := h.box.env.scheduler.state()
		return len(h.executed) == 4 && computing == 0 && waiting == 0
	})
	want(t, h.call(h.add(module{imports: []imported{output}, call: ok()}.bytes()), object{}), "")
	close(release)
	wg.Wait()
	soon(
		t,
		"all turns are over",
		func() bool { return h.box.env.scheduler.idle() },
	)
}
