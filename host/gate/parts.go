package gate

import (
	"context"
	"encoding/json"
	"time"

	"github.com/caponier-mcp/caponier/sdk/abi"
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

	// User is the user of the client that makes a call. The client alone vouches for it. Answers
	// come when the client makes the same call again.
	User interface {
		// Ask returns the answer to a plugin's question. The error is ErrPending or an *OpError.
		Ask(q abi.Ask) (Result, error)
		// CanConfirm reports whether the user can be asked to approve the call, or has been.
		CanConfirm() bool
		// Confirm returns "approve" or "deny" for what the user answered about this request,
		// "asked" while the client is to ask, and "" if no answer can be had.
		Confirm(request, message string) string
	}

	// Planner makes a plan of the steps of a call, and of how its dry run ended.
	Planner interface {
		Plan(c *Call, steps []Step, a Answer) Plan
	}

	// Plan is what a call would do, as its dry run showed. Complete reports whether it names all of
	// that, or else where it ends. Next compares an operation with the first step that is left, and
	// Take takes that step. A Plan is JSON for programs, and belongs to one call: it is not safe
	// for concurrent use.
	Plan interface {
		Digest() string
		Text() string // for people, without characters that do not show
		Complete() (ok bool, ends string)
		Next(q Question) PlanFacts
		Take()
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

	// Runner runs the plugin of an allowed call. Before the call's budget begins, Ready waits until
	// that is possible and tells why. The errors of Run are *BudgetError and *PluginError.
	Runner interface {
		Ready(ctx context.Context, t *Tool, tell func(message string)) error
		Run(ctx context.Context, r *Running) (Output, error)
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

// Result is that of an operation.
type Result struct {
	Value  any   // the response, a type of sdk/abi
	Bytes  int64 // moved or returned
	SHA256 string
	Exit   *int
	Stage  *StageDir // a directory that now belongs to the call
	Plan   bool      // the operation was recorded, and Value is what success would look like
	Next   abi.Op    // the operation that this one leads to, such as a redirect; decided by itself
}

// Output is what an instance wrote. Code is the result of caponier_v1_call.
type Output struct {
	Code  int
	JSON  json.RawMessage
	Notes Notes
}

// Notes count what an instance noted.
type Notes struct {
	Logs     int   `json:"logs"`
	Progress int   `json:"progress"`
	Dropped  int   `json:"dropped"`
	CPUTicks int64 `json:"cpu_ticks"`
}

// Record is one line of the journal. It never holds file contents or outputs.
type Record struct {
	Type       string          `json:"type"` // intent | refused | outcome
	Time       time.Time       `json:"time"`
	ID         string          `json:"decision_id"`
	CallID     string          `json:"call_id"`
	Kind       string          `json:"kind"` // call | operation | plan | approval
	Op         string          `json:"op,omitempty"`
	Phase      string          `json:"phase,omitempty"`
	Principal  string          `json:"principal"`
	Source     string          `json:"source,omitempty"`
	Plugin     Plugin          `json:"plugin"`
	Tool       string          `json:"tool"`
	Node       string          `json:"node,omitempty"`
	Tier       string          `json:"tier,omitempty"`
	Failed     []string        `json:"failed,omitempty"`
	Denied     []Reason        `json:"deny,omitempty"`
	Revision   string          `json:"revision,omitempty"`
	CallRev    string          `json:"call_revision,omitempty"` // that decided an operation's call
	Input      json.RawMessage `json:"input,omitempty"`
	Masked     bool            `json:"masked,omitempty"` // Input lacks part of what was decided
	Outcome    Outcome         `json:"outcome,omitempty"`
	Code       string          `json:"code,omitempty"` // why it failed, one word
	Exit       *int            `json:"exit,omitempty"`
	Bytes      int64           `json:"bytes,omitempty"`
	SHA256     string          `json:"sha256,omitempty"`
	DurationUS int64           `json:"duration_us,omitempty"`
	Refused    int             `json:"refused,omitempty"` // operations of the call
	Notes      *Notes          `json:"notes,omitempty"`
	Verdict    *Verdict        `json:"verdict,omitempty"` // of an approval
	Plan       string          `json:"plan,omitempty"`    // digest: made by the call, or binding it
}

// Verdict is what a person says about a call that waits.
type Verdict struct {
	Request string `json:"request"` // its id
	Approve bool   `json:"approve"`
	By      string `json:"by"`
	Channel string `json:"channel"`
	Note    string `json:"note,omitempty"`
}
