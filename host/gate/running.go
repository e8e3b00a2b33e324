package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

const (
	endTime     = 10 * time.Second // to free what belongs to a call
	maxNext     = 10               // operations that one may lead to, one after the other
	maxOps      = 10_000           // operations of one call
	keptRefused = 64               // refusals that an answer lists; all are counted and journaled
)

// Running is an allowed call while its instance runs: what the plugin may ask the host for. Its
// methods may be called concurrently. After the call has ended they refuse.
type Running struct {
	Call     *Call
	Round    int    // 1, and 1 more each time that the call's questions were answered
	Nodes    []Node // of the inventory, that the plugin is told of
	door     *Door
	progress func(done, total float64, message string)
	log      func(level int, message string)

	turn sync.Mutex // one operation at a time; locked before mu

	mu            sync.Mutex // guards what follows
	ended         bool
	effects       bool // an operation above green started
	unknown       bool // and one has an unknown outcome
	pending       bool // an ask waits for its answer
	journalFailed bool // an outcome could not be written
	asked         int
	refusals      int
	refused       []*Refused // the first of them
	nodes         []string   // that operations ran on
}

// Operate takes one operation through the door, and then those that it leads to, each decided by
// itself. The result is that of the last one. The error is *abi.RequestError, *Refused, *OpError or
// ErrPending.
func (r *Running) Operate(ctx context.Context, op abi.Op) (Result, error) {
	r.turn.Lock()
	defer r.turn.Unlock()
	for n := 0; ; n++ {
		res, err := r.operate(ctx, op)
		if refused := (*Refused)(nil); n > 0 && errors.As(err, &refused) {
			refused.Denied = append(refused.Denied, Reason{ID: "next",
				Msg: fmt.Sprintf("the %s before this one was done, and led here", op.Import())})
		}
		if err != nil || res.Next == nil {
			return res, err
		}
		if n == maxNext || res.Next.Import() != op.Import() {
			return Result{}, r.note(&OpError{Code: "too_many", Outcome: Failed,
				Message: fmt.Sprintf("%s led to %d more operations, or to one of another kind",
					op.Import(), n+1)}, false, false)
		}
		op = res.Next
	}
}

func (r *Running) operate(ctx context.Context, op abi.Op) (Result, error) {
	if err := r.may(op); err != nil {
		return Result{}, err
	}
	q, err := r.question(op)
	if err != nil {
		return Result{}, err
	}
	exec := r.door.o.Executors[op.Import()]
	if exec == nil {
		return Result{}, &abi.RequestError{Field: "import",
			Message: op.Import() + " is not available on this host"}
	}
	if entry, _ := abi.Lookup(op.Import()); entry.Lookup {
		q.Phase = PhaseLookup
		look := func(ctx context.Context, q Question, _ Decision) (Facts, Record, error) {
			f, err := exec.Lookup(ctx, q)
			return f, Record{Outcome: outcomeOf(err), Code: codeOf(err)}, err
		}
		facts, failed, err := pass(ctx, r.door, q, look)
		if err = r.note(err, false, failed); err != nil {
			return Result{}, err
		}
		q.Phase, q.Facts = PhaseEffect, facts
	}
	above := false
	act := func(ctx context.Context, q Question, d Decision) (Result, Record, error) {
		above = d.Tier != Green
		r.started(above)
		res, err := exec.Execute(ctx, q, d)
		if _, asks := op.(abi.Ask); !asks && errors.Is(err, ErrPending) {
			err = &OpError{Code: "failed", Message: op.Import() + " cannot wait", Outcome: Failed}
		}
		if res.Stage != nil {
			r.Call.Stages = append(r.Call.Stages, *res.Stage)
		}
		return res, Record{Outcome: outcomeOf(err), Code: codeOf(err), Exit: res.Exit,
			Bytes: res.Bytes, SHA256: res.SHA256}, err
	}
	res, failed, err := pass(ctx, r.door, q, act)
	return res, r.note(err, above, failed)
}

// question returns the question of an operation, with its node and its lowered command.
func (r *Running) question(op abi.Op) (Question, error) {
	q := Question{Kind: KindOperation, Call: r.Call, Op: op, Progress: r.Progress}
	if name := op.NodeName(); name != "" {
		if q.Node = r.Call.node(name); q.Node == nil {
			return q, &abi.RequestError{Field: "node", Message: "is not in the inventory"}
		}
		r.mu.Lock()
		if !slices.Contains(r.nodes, name) {
			r.nodes = append(r.nodes, name)
		}
		r.mu.Unlock()
	}
	switch op := op.(type) {
	case abi.SSHExec:
		cmd := r.door.o.Lowerer.Argv(op.Argv)
		q.Cmd = &cmd
	case abi.SSHScript:
		cmd := r.door.o.Lowerer.Script(op.Script)
		q.Cmd = &cmd
	}
	return q, nil
}

// Log passes a line of the instance to the host's log. Level is slog's.
func (r *Running) Log(level int, message string) {
	if r.log != nil && !r.over() {
		r.log(level, message)
	}
}

// Progress passes progress of the instance to the client. Total 0 is unknown.
func (r *Running) Progress(done, total float64, message string) {
	if r.progress != nil && !r.over() {
		r.progress(done, total, message)
	}
}

func (r *Running) tell(message string) { r.Progress(0, 0, message) }

// may counts an operation. The answer to an ask arrives in a new instance, which repeats what ran
// before: so no effect may come before an ask, and only further asks may come after it.
func (r *Running) may(op abi.Op) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	_, asks := op.(abi.Ask)
	switch {
	case r.ended:
		return &abi.RequestError{Field: "call", Message: "has ended"}
	case r.asked > maxOps:
		return &abi.RequestError{Field: "call",
			Message: fmt.Sprintf("has asked for %d operations, which is the limit", maxOps)}
	case asks && r.effects:
		return &abi.RequestError{Field: "call",
			Message: "has already done something above green: ask before that"}
	case !asks && r.pending:
		return &abi.RequestError{Field: "call",
			Message: "waits for an answer (status 5): return, and it starts again with it"}
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

// note remembers a refusal and an unknown outcome, so that a plugin cannot hide them, and makes
// every other error an *OpError.
func (r *Running) note(err error, above, journalFailed bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.journalFailed = r.journalFailed || journalFailed
	refused, op := (*Refused)(nil), (*OpError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		if r.refusals++; len(r.refused) < keptRefused {
			r.refused = append(r.refused, refused)
		}
		return refused
	case errors.Is(err, ErrPending):
		r.pending = true
		return ErrPending
	case !errors.As(err, &op):
		op = &OpError{Code: "failed", Message: err.Error(), Outcome: Failed}
	}
	r.unknown = r.unknown || above && op.Outcome == Unknown
	return op
}

// end ends the call, then frees what belongs to it, also when it was cancelled.
func (r *Running) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	seen := map[Executor]bool{}
	for _, e := range r.door.o.Executors {
		if !seen[e] {
			seen[e] = true
			e.End(ctx, r.Call)
		}
	}
}

// about returns the nodes that the call named or that its operations ran on.
func (r *Running) about() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	nodes := slices.Concat(r.Call.Targets.Nodes, r.nodes)
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// outcome trusts what the host saw over what the plugin returned.
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
