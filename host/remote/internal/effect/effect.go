// Package effect says what an operation on a node has done, or may have done.
package effect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"github.com/caponier-mcp/caponier/host/terms"
)

// LookFirst ends the message of an operation whose effect is unknown.
const LookFirst = "it may have been done: look before you repeat it"

// Failed is an operation that had no effect on the node, or whose effect is known and named in the
// message.
func Failed(code, format string, args ...any) *terms.OpError {
	return &terms.OpError{Code: code, Message: fmt.Sprintf(format, args...), Outcome: terms.Failed}
}

// Unknown is an operation whose request was sent and that may have been done.
func Unknown(code, format string, args ...any) *terms.OpError {
	e := Failed(code, format, args...)
	e.Outcome = terms.Unknown
	return e
}

// Stopped says why ctx ended: its time is over, or its caller cancelled it.
func Stopped(ctx context.Context) (code, why string) {
	budget := (*terms.BudgetError)(nil)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.As(context.Cause(ctx), &budget) {
		return "timeout", "timed out"
	}
	return "cancelled", "the call was cancelled"
}

// Pledge settles which came first: the worker that is about to send a request that may write, or
// the caller that gives up. Exactly one of them wins. The zero value is open.
type Pledge struct{ state atomic.Int32 } // 0, 1 sent, 2 given up

// Send reports whether the request may be sent.
func (p *Pledge) Send() bool { return p.state.CompareAndSwap(0, 1) }

// giveUp reports whether nothing was sent, nor ever will be.
func (p *Pledge) giveUp() bool { return p.state.CompareAndSwap(0, 2) }

// Sent reports whether the request may have been sent.
func (p *Pledge) Sent() bool { return p.state.Load() == 1 }

// Open reports whether neither has happened yet.
func (p *Pledge) Open() bool { return p.state.Load() == 0 }

// Result is what a worker hands to its caller.
type Result[T any] struct {
	Value T
	Err   error
}

// Await waits for the worker that p belongs to, but no longer than ctx. The error of a worker that
// is given up says what it did, why it was given up, and unsent or sent.
func Await[T any](
	ctx context.Context, p *Pledge, done <-chan Result[T], what, unsent, sent string,
) (none T, err error) {
	select {
	case r := <-done:
		return r.Value, r.Err
	case <-ctx.Done():
	}
	code, why := Stopped(ctx)
	if p.giveUp() {
		return none, Failed(code, "%s: %s; %s", what, why, unsent)
	}
	select { // it may have ended at the same moment
	case r := <-done:
		return r.Value, r.Err
	default:
		return none, Unknown(code, "%s: %s; %s", what, why, sent)
	}
}

// ErrPanic is a defect of this program, or of a library, that data of a node brought out.
var ErrPanic = errors.New("internal error")

// Guarded runs do, and returns a panic of it as an error. Every goroutine that handles data of a
// node runs under it, so that a node cannot end the process.
func Guarded[T any](do func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			slog.Error("panic in an operation on a node", "panic", p,
				"stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v; the log has the details", ErrPanic, p)
		}
	}()
	return do()
}
