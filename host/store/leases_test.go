package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/lease"
)

// leases is the part of the suite about leases.
func leases(t *testing.T, a, b engine, c *clock) {
	take := func(e engine, name, by string, want int64, holder string) {
		t.Helper()
		fence, has, err := e.TakeLease(bg, name, by, time.Minute)
		if err != nil || fence != want || has != holder {
			t.Errorf("%s takes %s: %d, %q, %v; want %d, %q", by, name, fence, has, err, want,
				holder)
		}
	}
	renew := func(e engine, fence int64, lost bool) {
		t.Helper()
		err := e.RenewLease(bg, "x", fence, time.Minute)
		if errors.Is(err, lease.ErrLost) != lost || err != nil && !lost {
			t.Errorf("renewing %d: %v, want lost %v", fence, err, lost)
		}
	}
	take(a, "x", "one", 1, "")
	take(b, "x", "two", 0, "one")
	take(a, "x", "one", 0, "one") // not even itself: two operations of one host are two
	take(b, "y", "two", 1, "")
	c.add(59 * time.Second)
	renew(a, 1, false)
	c.add(59 * time.Second)
	take(b, "x", "two", 0, "one")
	c.add(time.Second)
	renew(a, 1, true) // it has expired, also while nobody else has it
	take(b, "x", "two", 2, "")
	renew(a, 1, true)
	if err := a.EndLease(bg, "x", 1); err != nil { // which is another's by now
		t.Error(err)
	}
	take(a, "x", "one", 0, "two")
	renew(b, 2, false)
	if err := b.EndLease(bg, "x", 2); err != nil {
		t.Error(err)
	}
	renew(b, 2, true)
	take(a, "x", "one", 3, "") // the number never goes back
	c.add(-time.Hour)          // the clock was set back
	take(b, "x", "two", 4, "")
	renew(a, 3, true)
	if err := a.RenewLease(bg, "never taken", 1, time.Minute); !errors.Is(err, lease.ErrLost) {
		t.Errorf("one that never was: %v", err)
	}
	won := make(chan int64)
	for i := range 16 {
		go func() {
			fence, _, err := []engine{a, b}[i%2].TakeLease(bg, "z", "any", time.Minute)
			if err != nil {
				t.Error(err)
			}
			won <- fence
		}()
	}
	sum := int64(0)
	for range 16 {
		sum += <-won
	}
	if sum != 1 {
		t.Errorf("16 takers: the sum of fences is %d", sum)
	}
}
