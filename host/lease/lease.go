// Package lease keeps two hosts from a red operation on one guest at the same time.
package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// Book keeps leases for all hosts. Its clock is one for all of them.
type Book interface {
	// TakeLease takes a lease for a time, with a fencing number above all earlier ones. While
	// another process holds it, fence is 0, and holder names that process.
	TakeLease(ctx context.Context, name, by string, ttl time.Duration) (fence int64,
		holder string, err error)
	// RenewLease makes a lease last for the time from now on. Once it has expired, or another
	// has it, the error is ErrLost.
	RenewLease(ctx context.Context, name string, fence int64, ttl time.Duration) error
	// EndLease frees a lease, unless another has it.
	EndLease(ctx context.Context, name string, fence int64) error
}

// ErrLost is the error of a lease that has expired, or that another process holds.
var ErrLost = errors.New("the lease has expired, or another host has it")

// Executor executes red operations, and operations above green of red calls, while it holds the
// leases of their guests. If it cannot renew a lease, it ends the operation, and the outcome is
// unknown. All other operations pass through.
type Executor struct {
	terms.Executor
	Book Book
	Host string        // of which others are told
	TTL  time.Duration // 0 for 15s
	Wait time.Duration // for another to end, 0 for TTL and 5s more
}

var _ terms.Executor = (*Executor)(nil)

// Execute implements terms.Executor.
func (e *Executor) Execute(ctx context.Context, q terms.Question, d terms.Decision) (
	terms.Result, error) {
	names := guests(q)
	if len(names) == 0 || !red(q, d) {
		return e.Executor.Execute(ctx, q, d)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var keeping sync.WaitGroup
	over := make(chan struct{})
	end := sync.OnceFunc(func() { close(over); keeping.Wait() })
	defer end()
	for _, name := range names {
		fence, began, err := e.take(ctx, q, name)
		if err != nil {
			return terms.Result{}, err
		}
		keeping.Go(func() {
			if err := e.keep(ctx, name, fence, began, over); err != nil {
				cancel(&lostError{name, err})
			}
		})
	}
	res, err := e.Executor.Execute(ctx, q, d)
	end()
	if lost := (*lostError)(nil); errors.As(context.Cause(ctx), &lost) {
		slog.Error("an operation was ended without its lease", "call", q.Call.ID, "error", lost)
		return terms.Result{}, &terms.OpError{Code: "lease_lost", Outcome: terms.Unknown,
			Message: lost.Error() + "; what the operation did is unknown: look before you " +
				"repeat it"}
	}
	return res, err
}

// red reports that an operation is red, or is above green in a red call.
func red(q terms.Question, d terms.Decision) bool {
	return d.Tier != terms.Green && max(d.Tier, q.Call.Decided.Tier) >= terms.Red
}

type lostError struct {
	name  string
	cause error
}

func (e *lostError) Error() string {
	return fmt.Sprintf("the lease of %s could not be renewed: %s", e.name, e.cause)
}

// guests names the leases of an operation: the guests of its call, and those that it was seen to
// touch.
func guests(q terms.Question) (names []string) {
	if q.Node == nil || q.Call == nil || q.Call.Planning {
		return nil
	}
	cluster := cmp.Or(q.Node.Cluster, q.Node.Name)
	for _, id := range q.Call.Targets.VMIDs {
		names = append(names, "guest "+id+" of "+cluster)
	}
	for _, t := range q.Facts.Touches {
		if id, is := strings.CutPrefix(t.About, "guest:"); is {
			names = append(names, "guest "+id+" of "+cluster)
		}
	}
	slices.Sort(names) // in one order everywhere, so that no two wait for each other
	return slices.Compact(names)
}

func (e *Executor) ttl() time.Duration {
	if e.TTL == 0 {
		return 15 * time.Second
	}
	return e.TTL
}

// take waits until the lease is free. It returns the earliest time from which it holds the lease.
// If it returns an error, nothing was done.
func (e *Executor) take(ctx context.Context, q terms.Question, name string) (fence int64,
	began time.Time, err error) {
	wait := e.Wait
	if wait == 0 { // longer than a host that was killed keeps it
		wait = e.ttl() + 5*time.Second
	}
	for until := time.Now().Add(wait); ; {
		began = time.Now()
		fence, holder, err := e.Book.TakeLease(ctx, name, "call "+q.Call.ID+" on "+e.Host, e.ttl())
		switch {
		case err != nil:
			return 0, began, terms.Fail("unavailable", "nothing was done: no lease of %s: %s", name,
				err)
		case fence > 0:
			return fence, began, nil
		case time.Now().After(until):
			return 0, began, terms.Fail("busy", "nothing was done: %s changes %s; try again when "+
				"it has ended", holder, name)
		}
		if q.Progress != nil {
			q.Progress(0, 0, "waiting for "+holder+", which changes "+name)
		}
		select {
		case <-ctx.Done():
			return 0, began, terms.Fail("cancelled", "nothing was done: %s", context.Cause(ctx))
		case <-time.After(min(200*time.Millisecond, e.ttl()/10)):
		}
	}
}

// keep renews a lease until over is closed, then ends it. It returns why the lease is lost: it was
// said to be, or it was not renewed for so long that it ends soon, when the operation has to be
// over.
func (e *Executor) keep(ctx context.Context, name string, fence int64, renewed time.Time,
	over <-chan struct{}) error {
	ctx = context.WithoutCancel(ctx) // it is kept while a cancelled operation ends
	var last error
	safe := e.ttl() * 4 / 5
	for {
		next := time.Until(renewed.Add(e.ttl() / 3))
		if last != nil {
			next = min(e.ttl()/20, time.Until(renewed.Add(safe)))
		}
		select {
		case <-over:
			return e.free(ctx, name, fence)
		case <-time.After(next):
		}
		began := time.Now()
		most, stop := context.WithDeadline(ctx, renewed.Add(safe))
		err := e.Book.RenewLease(most, name, fence, e.ttl())
		stop()
		switch {
		case err == nil:
			renewed, last = began, nil
		case errors.Is(err, ErrLost) || time.Since(renewed) >= safe:
			return err
		default:
			last = err
		}
	}
}

// free ends a lease. Where that fails, it expires.
func (e *Executor) free(ctx context.Context, name string, fence int64) error {
	ctx, stop := context.WithTimeout(ctx, e.ttl())
	defer stop()
	if err := e.Book.EndLease(ctx, name, fence); err != nil {
		slog.Warn("a lease ends by itself", "lease", name, "within", e.ttl(), "error", err)
	}
	return nil
}
