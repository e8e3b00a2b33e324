package gate

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Refused says that policy, or something on the way to it, said no. Nothing was executed.
type Refused struct {
	DecisionID    string   `json:"decision_id"`
	Kind          string   `json:"kind"` // call | operation
	Op            string   `json:"op,omitempty"`
	Phase         string   `json:"phase,omitempty"`
	Failed        []string `json:"failed"`
	Denied        []Reason `json:"deny"`
	NeedsApproval bool     `json:"needs_approval,omitempty"`
	Decision      Decision `json:"-"` // that refused it, for whoever is asked to confirm
}

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

// InvalidArguments says that the arguments do not fit the tool. Nothing was decided or executed.
type InvalidArguments struct {
	Tool string
	Err  error
}

func (e *InvalidArguments) Error() string {
	return fmt.Sprintf("arguments of %s: %v", e.Tool, e.Err)
}
func (e *InvalidArguments) Unwrap() error { return e.Err }

// Waiting says that a person has to decide; the same call made again joins the request.
type Waiting struct {
	ApprovalID string
	Where      string // where the person can decide
	Expires    time.Time
}

func (e *Waiting) Error() string {
	return fmt.Sprintf(
		"waiting for a person to approve %s; %s; the same call made again goes on from there",
		e.ApprovalID,
		e.Where,
	)
}

// BadRequest says which field of a request is wrong.
type BadRequest struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

func (e *BadRequest) Error() string { return e.Field + ": " + e.Message }

// ErrPending is a question (ask) that waits for its answer: the guest has to return, and the same
// call comes again with the answer.
var ErrPending = errors.New(
	"pending: the user is being asked; return, and the call comes again with the answer",
)

// OpError is an operation that did not succeed. Code is one word for programs; Message may be shown
// to the plugin.
type OpError struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Outcome Outcome `json:"-"` // Failed or Unknown
}

func (e *OpError) Error() string { return e.Code + ": " + e.Message }

// BudgetError is a call that ran out of its time and was stopped.
type BudgetError struct {
	Tool            string
	CallID          string
	Limit           time.Duration
	MayHaveExecuted bool // an operation above green had been started
}

func (e *BudgetError) Error() string {
	s := fmt.Sprintf("tool %q exceeded its budget of %s and was stopped", e.Tool, e.Limit)
	if e.MayHaveExecuted {
		s += "; what it had started on the node may have been done, or may still be running: look before you repeat it"
	}
	return s
}

// PluginError is a guest that broke: it trapped, exited, ran out of memory or answered against the
// ABI.
type PluginError struct {
	// plugin_trap | plugin_exit | plugin_memory | plugin_protocol | plugin_unavailable
	Code    string
	Message string
}

func (e *PluginError) Error() string { return e.Code + ": " + e.Message }
