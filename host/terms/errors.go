package terms

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The kinds of errors of this package, for errors.Is. The types below hold the details.
var (
	ErrRefused   = errors.New("refused")           // *Refused: nothing was executed
	ErrArguments = errors.New("invalid arguments") // *InvalidArguments: nothing was decided
	ErrWaiting   = errors.New("waiting")           // *Waiting: for a person
	ErrOperation = errors.New("operation failed")  // *OpError
	ErrBudget    = errors.New("budget exceeded")   // *BudgetError
	ErrPlugin    = errors.New("plugin failed")     // *PluginError
	// ErrPlanFirst is a call that policy wants planned first, on a host that cannot.
	ErrPlanFirst = errors.New("this host cannot plan the call, which policy wants planned first")
	// ErrPending is an ask that waits for its answer.
	ErrPending = errors.New("pending: return from the call; it starts again with the answer")
)

// Refused is a refusal by policy, or by something on the way to it. Nothing was executed.
type Refused struct {
	DecisionID    string   `json:"decision_id"`
	Kind          string   `json:"kind"` // call | operation
	Op            string   `json:"op,omitempty"`
	Phase         string   `json:"phase,omitempty"`
	Failed        []string `json:"failed"`
	Denied        []Reason `json:"deny"`
	NeedsApproval bool     `json:"needs_approval,omitempty"`
	Decision      Decision `json:"-"` // for the Confirmer
}

func (e *Refused) Is(target error) bool { return target == ErrRefused }

func (e *Refused) Error() string {
	var why []string
	for _, d := range e.Denied {
		why = append(why, d.Msg+" ("+d.ID+")")
	}
	what := e.Kind
	if e.Op != "" {
		what = e.Op
	}
	return fmt.Sprintf("%s refused by policy: checks that did not hold: %s. %s Decision %s",
		what, strings.Join(e.Failed, ", "), strings.Join(why, "; "), e.DecisionID)
}

// InvalidArguments are arguments that do not fit the tool.
type InvalidArguments struct {
	Tool string
	Err  error
}

func (e *InvalidArguments) Is(target error) bool { return target == ErrArguments }
func (e *InvalidArguments) Unwrap() error        { return e.Err }

func (e *InvalidArguments) Error() string { return fmt.Sprint("arguments of "+e.Tool+": ", e.Err) }

// Waiting is a call that a person must approve. The same call made again joins the request.
type Waiting struct {
	ApprovalID string
	Where      string // where the person can decide
	Expires    time.Time
}

func (e *Waiting) Is(target error) bool { return target == ErrWaiting }

func (e *Waiting) Error() string {
	return fmt.Sprintf("waiting for a person to approve %s; %s; to continue, make the same "+
		"call again", e.ApprovalID, e.Where)
}

// OpError is an operation that did not succeed. Code is one word for programs. The plugin may see
// Message.
type OpError struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Outcome Outcome `json:"-"` // Failed or Unknown
}

// Fail returns the error of an operation that had no effect, or whose effect is known and named in
// the message.
func Fail(code, format string, args ...any) *OpError {
	return &OpError{Code: code, Message: fmt.Sprintf(format, args...), Outcome: Failed}
}

func (e *OpError) Is(target error) bool { return target == ErrOperation }
func (e *OpError) Error() string        { return e.Code + ": " + e.Message }

// BudgetError is a call that exceeded its budget and was stopped.
type BudgetError struct {
	Tool, CallID    string
	Limit           time.Duration
	MayHaveExecuted bool // an operation above green had started
}

func (e *BudgetError) Is(target error) bool { return target == ErrBudget }

func (e *BudgetError) Error() string {
	s := fmt.Sprintf("tool %q exceeded its budget of %s and was stopped", e.Tool, e.Limit)
	if e.MayHaveExecuted {
		s += "; operations that it started may be done, or may still run: " +
			"check before you repeat it"
	}
	return s
}

// PluginError is an instance that broke. Code is plugin_trap, plugin_exit, plugin_memory,
// plugin_protocol or plugin_unavailable.
type PluginError struct{ Code, Message string }

func (e *PluginError) Is(target error) bool { return target == ErrPlugin }
func (e *PluginError) Error() string        { return e.Code + ": " + e.Message }

// Ended returns the outcome and the code of what ended with this error, for the journal.
func Ended(err error) (Outcome, string) {
	var op *OpError
	var plugin *PluginError
	switch {
	case err == nil:
		return Succeeded, ""
	case errors.As(err, &op) && op.Outcome == Unknown:
		return Unknown, op.Code
	case op != nil:
		return Failed, op.Code
	case errors.As(err, &plugin):
		return Failed, plugin.Code
	case errors.Is(err, ErrBudget):
		return Failed, "budget"
	case errors.Is(err, ErrPending):
		return Waits, "pending"
	case errors.Is(err, ErrPlanFirst):
		return Waits, ""
	case errors.Is(err, context.Canceled):
		return Failed, "cancelled"
	}
	return Failed, "failed"
}
