package fair

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
)

func TestTheZeroValueHasNoSlots(t *testing.T) {
	var s Shares
	if s.TryAcquire("a") {
		t.Error("the zero value granted a slot")
	}
	if used, waiting := s.Held(); used != 0 || waiting != 0 || len(s.of) != 0 {
		t.Errorf("held: %d, waiting: %d, principals: %d", used, waiting, len(s.of))
	}
}

func TestOnePrincipalHoldsAtMostItsShare(t *testing.T) {
	s := New(4, Half(4))
	for range 2 {
		if !s.TryAcquire("a") {
			t.Fatal("a slot within the share was refused")
		}
	}
	if s.TryAcquire("a") {
		t.Error("a third slot of four was granted to one principal")
	}
	if !s.TryAcquireN("b", 2) || s.TryAcquire("c") {
		t.Error("the other half was not granted, or a fifth slot was")
	}
	if s.TryAcquireN("c", -1) {
		t.Error("a negative number of slots was granted")
	}
}

// Waiters are granted a slot in the order of who holds the fewest, then of who was served longest
// ago, whatever the order in which they came.
func TestWaitersAreServedInFairOrder(t *testing.T) {
	for name, c := range map[string]struct {
		slots, each int
		holds       string // taken at first, one letter a slot
		waits       string
		released    string // one after another
		want        string
	}{
		"one slot, a crowd first": {1, 1, "a", "aaab", "aab", "aba"},
		"the fewest held first":   {3, 3, "aab", "abc", "aaa", "cab"},
		"a full share waits":      {3, 1, "abc", "aab", "cba", "ba"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(c.slots, c.each)
				for _, p := range c.holds {
					if !s.TryAcquire(string(p)) {
						t.Fatalf("no slot for %c", p)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				got := ""
				for _, p := range c.waits {
					go func() {
						if s.Acquire(ctx, string(p)) == nil {
							got += string(p) // one at a time: the bubble rests between releases
						}
					}()
					synctest.Wait()
				}
				for _, p := range c.released {
					s.Release(string(p))
					synctest.Wait()
				}
				if got != c.want {
					t.Errorf("served %q, want %q", got, c.want)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

// Principals that come again and again must not keep another one waiting.
func TestNewcomersDoNotStarveAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1, 1)
		s.TryAcquire("a")
		served := ""
		wait := func(who string) {
			go func() {
				if s.Acquire(t.Context(), who) == nil {
					served = who
				}
			}()
			synctest.Wait()
		}
		wait("patient")
		wait("new")
		s.Release("a")
		wait("newer")
		if served != "patient" {
			t.Errorf("served %q before the one that came first", served)
		}
		for _, holder := range []string{"patient", "new", "newer"} {
			s.Release(holder)
			synctest.Wait()
		}
	})
}

func TestAWaiterThatGivesUpHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1, 1)
		s.TryAcquire("a")
		gone := errors.New("the client is gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		var err error
		go func() { err = s.Acquire(ctx, "b") }()
		synctest.Wait()
		cancel(gone)
		synctest.Wait()
		if err != gone {
			t.Errorf("error %v, want the cause of the context", err)
		}
		if err := s.Acquire(ctx, "c"); err != gone {
			t.Errorf("an ended context got %v", err)
		}
		s.Release("a")
		if used, waiting := s.Held(); used != 0 || waiting != 0 || len(s.of) != 0 {
			t.Errorf("left: %d held, %d waiting, %d principals", used, waiting, len(s.of))
		}
	})
}

func TestReleaseWithoutASlotPanics(t *testing.T) {
	s := New(2, 2)
	s.ReleaseN("a", 0)
	s.TryAcquire("a")
	for _, n := range []int{2, -1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("releasing %d of 1 did not panic", n)
				}
			}()
			s.ReleaseN("a", n)
		}()
	}
}

// Property: at no moment are more slots held than there are, nor more than its share by one
// principal; every waiter whose context lives is served; in the end nothing is left.
func TestRandomUseKeepsTheLimits(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		slots := 1 + rnd.IntN(6)
		each := 1 + rnd.IntN(slots)
		s := New(slots, each)
		var mu sync.Mutex
		held, all := map[string]int{}, 0
		var wg sync.WaitGroup
		for range 200 {
			who, tries, gives := fmt.Sprint(rnd.IntN(4)), rnd.IntN(3) == 0, rnd.IntN(5) == 0
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if gives {
					go cancel()
				}
				if tries && !s.TryAcquire(who) || !tries && s.Acquire(ctx, who) != nil {
					return
				}
				mu.Lock()
				if held[who]++; held[who] > each {
					t.Errorf("seed %d: %s holds %d, share %d", seed, who, held[who], each)
				}
				if all++; all > slots {
					t.Errorf("seed %d: %d of %d slots", seed, all, slots)
				}
				mu.Unlock()
				mu.Lock()
				held[who]--
				all--
				mu.Unlock()
				s.Release(who)
			})
		}
		wg.Wait()
		if used, waiting := s.Held(); used != 0 || waiting != 0 || len(s.of) != 0 {
			t.Errorf("seed %d: left %d held, %d waiting, %v", seed, used, waiting, s.of)
		}
	}
}

func TestResizeServesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(0, 0)
		served := false
		go func() { served = s.Acquire(t.Context(), "a") == nil }()
		synctest.Wait()
		if served {
			t.Fatal("a slot of none was granted")
		}
		s.Resize(1, 1)
		synctest.Wait()
		if !served {
			t.Error("the waiter was not served by the new slot")
		}
		s.Resize(0, 0)
		s.Release("a")
	})
}
