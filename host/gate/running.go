package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	cleanUp     = 10 * time.Second
	maxNext     = 10     // operations that one may lead to, one after the other
	maxOps      = 10_000 // operations that one call may ask for
	keptRefused = 64     // refusals that an answer lists; all are counted and journaled
)

// Running is an allowed call while its guest runs: what the guest may ask the host for. Its methods
// may be called concurrently, and are refused after the call has ended.
type Running struct {
	Call     *Call
	Round    int    // 1, and one more each time that its questions were answered
	Nodes    []Node // of the inventory, those that the plugin is told of
	door     *Door
	progress func(done, total float64, message string)
	log      func(level int, message string)

	turn sync.Mutex // one operation at a time; taken before mu

	mu            sync.Mutex // guards the following
	ended         bool
	effects       bool // an operation above green was started
	unknown       bool // and one ended without an answer
	pending       bool // a question waits for its answer
	journalFailed bool // an outcome could not be written
	asked         int
	refusals      int
	refused       []*Refused // the first of them
	went          []string   // nodes that operations were for
}

// Operate takes one operation through the door, and then what it leads to, each with decisions of
// its own. The result is that of the last one. The error is *BadRequest, *Refused, *OpError or
// ErrPending.
func (r *Running) Operate(ctx context.Context, op Op) (Result, error) {
	r.turn.Lock()
	defer r.turn.Unlock()
	for n := 0; ; n++ {
		res, err := r.operate(ctx, op)
		// "nothing was executed" would be wrong
		if refused := (*Refused)(nil); n > 0 && errors.As(err, &refused) {
			refused.Denied = append(
				refused.Denied,
				Reason{
					ID:  "next",
					Msg: fmt.Sprintf("the %s before this one was done, and led here", op.Import()),
				},
			)
		}
		if err != nil || res.Next == nil {
			return res, err
		}
		if n == maxNext || res.Next.Import() != op.Import() {
			return Result{}, r.note(
				&OpError{
					Code: "too_many",
					Message: fmt.Sprintf(
						"%s led to %d more operations, or to one of another kind",
						op.Import(),
						n+1,
					),
					Outcome: Failed,
				},
				false,
				false,
			)
		}
		op = res.Next
	}
}

func (r *Running) operate(ctx context.Context, op Op) (Result, error) {
	if err := r.may(op); err != nil {
		return Result{}, err
	}
	q := Question{Kind: KindOperation, Call: r.Call, Op: op, Progress: r.Progress}
	if op.NodeName() != "" {
		if q.Node = r.Call.node(op.NodeName()); q.Node == nil {
			return Result{}, &BadRequest{Field: "node", Message: "is not in the inventory"}
		}
		r.mu.Lock()
		if !slices.Contains(r.went, op.NodeName()) {
			r.went = append(r.went, op.NodeName())
		}
		r.mu.Unlock()
	}
	switch op := op.(type) {
	case SSHExec:
		cmd := r.door.Lowerer.Argv(op.Argv)
		q.Cmd = &cmd
	case SSHScript:
		cmd := r.door.Lowerer.Script(op.Script)
		q.Cmd = &cmd
	}
	exec := r.door.Executors[op.Import()]
	if exec == nil {
		return Result{}, &BadRequest{
			Field:   "import",
			Message: op.Import() + " is not available on this host",
		}
	}
	if kinds[op.Import()].facts {
		q.Phase = PhaseLookup
		facts, lost, err := pass(
			ctx,
			r.door,
			q,
			func(ctx context.Context, q Question, _ Decision) (Facts, Record, error) {
				f, err := exec.Lookup(ctx, q)
				return f, Record{Outcome: outcomeOf(err), Code: codeOf(err)}, err
			},
		)
		if err = r.note(err, false, lost); err != nil {
			return Result{}, err
		}
		q.Phase, q.Facts = PhaseEffect, facts
	}
	above := false
	res, lost, err := pass(
		ctx,
		r.door,
		q,
		func(ctx context.Context, q Question, d Decision) (Result, Record, error) {
			above = d.Tier != Green
			r.started(above)
			res, err := exec.Execute(ctx, q, d)
			if _, asks := op.(Ask); !asks && errors.Is(err, ErrPending) {
				err = &OpError{
					Code:    "failed",
					Message: op.Import() + " cannot wait for an answer",
					Outcome: Failed,
				}
			}
			if res.Stage != nil {
				r.Call.Stages = append(r.Call.Stages, *res.Stage)
			}
			return res, Record{
				Outcome: outcomeOf(err),
				Code:    codeOf(err),
				Exit:    res.Exit,
				Bytes:   res.Bytes,
				SHA256:  res.SHA256,
			}, err
		},
	)
	return res, r.note(err, above, lost)
}

// Log passes a line from the guest to the host's log. Level is slog's.
func (r *Running) Log(level int, message string) {
	if r.log != nil && !r.over() {
		r.log(level, message)
	}
}

// Progress passes the guest's progress to the client. Total 0 is unknown.
func (r *Running) Progress(done, total float64, message string) {
	if r.progress != nil && !r.over() {
		r.progress(done, total, message)
	}
}

// may counts an operation in. An answer arrives in a fresh guest, which would do again what was
// done before: so nothing above green comes before a question, and nothing but more questions after
// one that waits.
func (r *Running) may(op Op) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return &BadRequest{Field: "call", Message: "has ended"}
	}
	if r.asked++; r.asked > maxOps {
		return &BadRequest{
			Field:   "call",
			Message: fmt.Sprintf("has asked for %d operations, and that is the most", maxOps),
		}
	}
	_, asks := op.(Ask)
	switch {
	case asks && r.effects:
		return &BadRequest{
			Field:   "call",
			Message: "has already done something above green: ask before that",
		}
	case !asks && r.pending:
		return &BadRequest{
			Field:   "call",
			Message: "waits for an answer (status 5): return, and it comes again with it",
		}
	}
	return nil
}

func (r *Running) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

func (r *Running) started(above bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.effects = r.effects || above
}

// note remembers a refusal and a lost answer, so that a guest cannot hide them, and makes every
// other error an *OpError.
func (r *Running) note(err error, above, journalFailed bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.journalFailed = r.journalFailed || journalFailed
	if refused := (*Refused)(nil); errors.As(err, &refused) {
		if r.refusals++; len(r.refused) < keptRefused {
			r.refused = append(r.refused, refused)
		}
		return refused
	}
	if errors.Is(err, ErrPending) {
		r.pending = true
		return ErrPending
	}
	if err == nil {
		return nil
	}
	op := (*OpError)(nil)
	if !errors.As(err, &op) {
		op = &OpError{Code: "failed", Message: err.Error(), Outcome: Failed}
	}
	r.unknown = r.unknown || above && op.Outcome == Unknown
	return op
}

// end closes the call's door, then frees what belongs to the call. A cancelled call cleans up all
// the same, within cleanUp.
func (r *Running) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	seen := map[Executor]bool{}
	for _, e := range r.door.Executors {
		if !seen[e] {
			seen[e] = true
			e.End(ctx, r.Call)
		}
	}
}

// about lists the nodes that the call named or went to.
func (r *Running) about() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	nodes := slices.Concat(r.Call.Targets.Nodes, r.went)
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// outcome believes what the host saw before it believes the guest.
func (r *Running) outcome(out Output, err error) Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.unknown:
		return Unknown
	case err == nil && out.Code != 0 && r.pending:
		return Waits
	case err != nil || out.Code != 0:
		return Failed
	}
	return Succeeded
}

func outcomeOf(err error) Outcome {
	op := (*OpError)(nil)
	switch {
	case err == nil:
		return Succeeded
	case errors.As(err, &op) && op.Outcome == Unknown:
		return Unknown
	case errors.Is(err, ErrPending):
		return Waits
	}
	return Failed
}

func codeOf(err error) string {
	var op *OpError
	var budget *BudgetError
	var plugin *PluginError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &op):
		return op.Code
	case errors.As(err, &plugin):
		return plugin.Code
	case errors.As(err, &budget):
		return "budget"
	case errors.Is(err, ErrPending):
		return "pending"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return "failed"
}
