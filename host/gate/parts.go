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

	// Lowerer turns command text into argv lists. It must be pure.
	Lowerer interface {
		Script(text string) Command
		Argv(argv []string) Command
	}

	// Throttle bounds the calls of a principal that come to nothing, since each of them is
	// journaled. Wait returns how long the principal has to wait, 0 for not at all, and how many of
	// its calls are to be journaled with this one as one record, 0 for no record.
	Throttle interface {
		Note(principal string, now time.Time)
		Wait(principal string, now time.Time) (wait time.Duration, unrecorded int)
	}

	// Runner runs the plugin of an allowed call. Before the call's budget begins, Ready waits until
	// that is possible and tells why. The errors of Run are *BudgetError and *PluginError.
	Runner interface {
		Ready(ctx context.Context, t *Tool, tell func(message string)) error
		Run(ctx context.Context, r *Running) (Output, error)
	}

	// Executor does allowed operations. Lookup finds the facts of an operation whose lookup was
	// allowed. End frees what belongs to the call, and must return when ctx ends. Errors are
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
	Kind       string          `json:"kind"` // call | operation | approval
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
}

// Verdict is what a person says about a call that waits.
type Verdict struct {
	Request string `json:"request"` // its id
	Approve bool   `json:"approve"`
	By      string `json:"by"`
	Channel string `json:"channel"`
	Note    string `json:"note,omitempty"`
}
