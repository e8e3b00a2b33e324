package lease_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caponier-mcp/caponier/host/lease"
	"github.com/caponier-mcp/caponier/host/terms"
)

// book is a book of several hosts in memory. It can be away, and answer slowly.
type book struct {
	mu     sync.Mutex
	fence  map[string]int64
	until  map[string]time.Time
	holder map[string]string
	away   error
}

func newBook() *book {
	return &book{fence: map[string]int64{}, until: map[string]time.Time{},
		holder: map[string]string{}}
}

func (b *book) set(away error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = away
}

func (b *book) TakeLease(_ context.Context, name, by string, ttl time.Duration) (int64, string,
	error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away != nil || time.Now().Before(b.until[name]) {
		return 0, b.holder[name], b.away
	}
	b.fence[name]++
	b.until[name], b.holder[name] = time.Now().Add(ttl), by
	return b.fence[name], "", nil
}

func (b *book) RenewLease(_ context.Context, name string, fence int64, ttl time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.away != nil:
		return b.away
	case b.fence[name] != fence || !time.Now().Before(b.until[name]):
		return lease.ErrLost
	}
	b.until[name] = time.Now().Add(ttl)
	return nil
}

func (b *book) EndLease(_ context.Context, name string, fence int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away == nil && b.fence[name] == fence {
		b.until[name] = time.Time{}
	}
	return b.away
}

// node executes an operation: for a time, or until it is ended.
type node struct {
	takes     time.Duration
	runs, max atomic.Int64
}

func (*node) Lookup(
	context.Context,
	terms.Question,
) (terms.Facts, error) {
	return terms.Facts{}, nil
}
func (*node) End(context.Context, *terms.Call) {}

func (n *node) Execute(ctx context.Context, _ terms.Question, _ terms.Decision) (terms.Result,
	error) {
	now := n.runs.Add(1)
	defer n.runs.Add(-1)
	for most := n.max.Load(); now > most && !n.max.CompareAndSwap(most, now); most = n.max.Load() {
	}
	select {
	case <-ctx.Done():
		return terms.Result{}, &terms.OpError{Code: "cancelled", Message: "in the middle",
			Outcome: terms.Unknown}
	case <-time.After(n.takes):
		return terms.Result{Bytes: 7}, nil
	}
}

var red = terms.Decision{Allow: true, Tier: terms.Red}

func on(vmids ...string) terms.Question {
	return terms.Question{Call: &terms.Call{ID: "C1", Targets: terms.Targets{VMIDs: vmids}},
		Node: &terms.Node{Name: "pve1", Cluster: "lab"}}
}

// wants holds an error to its code and outcome.
func wants(t *testing.T, err error, code string, how terms.Outcome, says string) {
	t.Helper()
	op := (*terms.OpError)(nil)
	if !errors.As(err, &op) || op.Code != code || op.Outcome != how ||
		!strings.Contains(op.Message, says) {
		t.Errorf("%v, want %s and %s", err, code, how)
	}
}

func TestRedOperationsOnOneGuestComeOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, n := newBook(), &node{takes: 2 * time.Second}
		hosts := []*lease.Executor{{Executor: n, Book: b, Host: "a"},
			{Executor: n, Book: b, Host: "b"}}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() { // in another order, so that they could wait for each other
				q := on("101", "102")
				if i%2 == 1 {
					q = on("102", "101")
				}
				if _, err := hosts[i%2].Execute(t.Context(), q, red); err != nil {
					t.Error(err)
				}
			})
		}
		if wg.Wait(); n.max.Load() != 1 {
			t.Errorf("%d at once", n.max.Load())
		}
		inRed := on("9")
		inRed.Call.Decided = red
		for name, c := range map[string]struct {
			q terms.Question
			d terms.Decision
		}{"yellow": {on("101"), terms.Decision{Allow: true, Tier: terms.Yellow}},
			"green, in a red call": {inRed, terms.Decision{Allow: true, Tier: terms.Green}},
			"no guest":             {on(), red},
			"no node":              {terms.Question{Call: on("101").Call}, red},
			"planned": {terms.Question{Call: &terms.Call{Planning: true,
				Targets: terms.Targets{VMIDs: []string{"101"}}}, Node: on().Node}, red}} {
			b.set(errors.New("away"))
			if _, err := hosts[0].Execute(t.Context(), c.q, c.d); err != nil {
				t.Errorf("%s needs a lease: %v", name, err)
			}
		}
		_, err := hosts[0].Execute(t.Context(), inRed,
			terms.Decision{Allow: true, Tier: terms.Yellow})
		wants(t, err, "unavailable", terms.Failed, "no lease of guest 9 of lab: away")
		touches := on()
		touches.Facts.Touches = []terms.Touched{{About: "unit:nginx"}, {About: "guest:7"}}
		_, err = hosts[0].Execute(t.Context(), touches, red)
		wants(t, err, "unavailable", terms.Failed, "no lease of guest 7 of lab: away")
	})
}

// An operation that takes longer than a lease keeps it. Another one waits, and is told for whom.
func TestALongOperationKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		long := &lease.Executor{Executor: &node{takes: time.Hour}, Book: b, Host: "a"}
		short := &lease.Executor{Executor: &node{takes: time.Second}, Book: b, Host: "b"}
		ended := make(chan error)
		go func() {
			r, err := long.Execute(t.Context(), on("101"), red)
			if r.Bytes != 7 {
				t.Errorf("its result is lost: %+v", r)
			}
			ended <- err
		}()
		time.Sleep(30 * time.Minute)
		began := time.Now()
		_, err := short.Execute(t.Context(), on("101"), red)
		wants(t, err, "busy", terms.Failed, "nothing was done: call C1 on a changes guest 101")
		if took := time.Since(began); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("it waited %s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = short.Execute(ctx, on("101"), red)
		wants(t, err, "cancelled", terms.Failed, "nothing was done")
		// away for shorter than the lease lasts, it is renewed when the store is back
		b.set(errors.New("away"))
		time.Sleep(9 * time.Second)
		b.set(nil)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := short.Execute(t.Context(), on("101"), red); err != nil {
			t.Errorf("after it: %v", err)
		}
	})
}

// A host that cannot renew its lease ends its operation before another host can have the lease, and
// says that the outcome is unknown.
func TestAnOperationEndsWhenItsLeaseIsLost(t *testing.T) {
	for name, lose := range map[string]func(*book){
		"the store is away": func(b *book) { b.set(errors.New("the store is away")) },
		"another has it": func(b *book) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.fence["guest 101 of lab"]++
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, n := newBook(), &node{takes: time.Hour}
				a := &lease.Executor{Executor: n, Book: b, Host: "a"}
				time.AfterFunc(time.Minute, func() { lose(b) })
				began := time.Now()
				_, err := a.Execute(t.Context(), on("101"), red)
				wants(t, err, "lease_lost", terms.Unknown, "what the operation did is unknown")
				if took := time.Since(began); took > time.Minute+15*time.Second {
					t.Errorf("it went on for %s, when another host could have the lease", took)
				}
				if n.runs.Load() != 0 {
					t.Error("it runs on")
				}
			})
		})
	}
}
