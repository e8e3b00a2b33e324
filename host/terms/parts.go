package terms

import (
	"context"
	"encoding/json"
	"time"
)

// The parts of a door. Each must be safe for concurrent use.
type (
	// Decider answers questions. An error is a refusal.
	Decider interface {
		Decide(context.Context, Question) (Decision, error)
	}

	// Journal keeps records. Intent returns nil only once the record is written, and synced if
	// durable is set. After Outcome failed, every Intent fails until that record is written.
	Journal interface {
		Intent(ctx context.Context, r Record, durable bool) error
		Outcome(ctx context.Context, r Record) error
	}

	// Ledger counts calls. Take counts one before it is decided; giveBack, which may be called
	// once, takes that back.
	Ledger interface {
		Take(ctx context.Context, c *Call) (counts Counts, giveBack func(), err error)
	}

	// Confirmer asks a person about a call that lacks only a confirmation, and reports through
	// progress that it does. It returns *Waiting if no person has decided yet, and *Refused after a
	// denial.
	Confirmer interface {
		Confirm(ctx context.Context, c *Call, d Decision, progress func(message string)) (
			Confirmation, error)
	}

	// Planner makes a plan of the steps of a call, and of how its dry run ended.
	Planner interface {
		Plan(c *Call, steps []Step, a Answer) Plan
	}

	// Lowerer turns command text into argv lists. It must be pure.
	Lowerer interface {
		Script(text string) Command
		Argv(argv []string) Command
	}

	// Turns share the processors among principals. A principal waits for its turn before the host
	// computes for it, and gives it back before the host waits for anything else.
	Turns interface {
		Acquire(ctx context.Context, principal string) error
		Release(principal string)
	}

	// Throttle bounds the calls of a principal that come to nothing, since each of them is
	// journaled. Note is told how long the host computed for one. Wait returns how long the
	// principal has to wait, 0 for not at all, and how many of its calls are to be journaled with
	// this one as one record, 0 for no record.
	Throttle interface {
		Note(principal string, now time.Time, cost time.Duration)
		Wait(principal string, now time.Time) (wait time.Duration, unrecorded int)
	}

	// Executor does allowed operations. Lookup finds the facts of an operation whose lookup was
	// allowed. End frees what belongs to the call, and must return when ctx ends. It is called once
	// for a call, or once for each import of an executor that cannot be compared. Errors are
	// *OpError or ErrPending; any other error counts as Failed.
	Executor interface {
		Lookup(ctx context.Context, q Question) (Facts, error)
		Execute(ctx context.Context, q Question, d Decision) (Result, error)
		End(ctx context.Context, c *Call)
	}
)

// Output is what an instance wrote. Code is the result of caponier_v1_call.
type Output struct {
	Code  int
	JSON  json.RawMessage
	Notes Notes
	Hits  []Hit // also beside an error
}

// Answer is how a call ended. Without Output, Err is one of the errors of this package.
type Answer struct {
	CallID        string
	Outcome       Outcome
	Tier          Tier
	Output        Output
	Err           error
	Refused       []*Refused // operations that were refused, whatever the plugin made of it
	Plan          Plan       // of a call that was only planned
	JournalFailed bool
}
