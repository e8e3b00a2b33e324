package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/caponier-mcp/caponier/sdk/abi/success"
)

const (
	endTime     = 10 * time.Second // to free what belongs to a call
	maxNext     = 10               // operations that one may lead to, one after the other
	maxOps      = 10_000           // operations of one call
	maxSteps    = 1_000            // of a plan: a person has to read them
	keptRefused = 64               // refusals that an answer lists; all are counted and journaled
)

// Runner runs the plugin of an allowed call. Before the call's budget begins, Ready waits until
// that is possible and tells why. The errors of Run are *BudgetError and *PluginError.
type Runner interface {
	Ready(ctx context.Context, c *terms.Call, tell func(message string)) error
	Run(ctx context.Context, r *Running) (terms.Output, error)
}

// Running is an allowed call while its instance runs: what the plugin may ask the host for. Its
// methods may be called concurrently. After the call has ended they refuse.
type Running struct {
	Call     *terms.Call
	Round    int          // 1, and 1 more each time that the call's questions were answered
	Nodes    []terms.Node // of the inventory, that the plugin is told of
	st       *state
	progress func(done, total float64, message string)
	log      func(level int, message string)

	turn    sync.RWMutex               // one at a time, but for copies; locked before mu
	touched map[string][]terms.Touched // of a planned call, by node; guarded by turn

	ended    atomic.Bool
	unknown  atomic.Bool // an operation above green has an unknown outcome
	mu       sync.Mutex  // guards what follows
	effects  bool        // an operation above green started, or was planned
	pending  bool        // an ask waits for its answer
	asked    int
	refusals int
	refused  []*terms.Refused // the first of them
	steps    []terms.Step     // of a planned call
}

// Operate takes one operation through the door, and then those that it leads to, each decided by
// itself. The result is that of the last one. The error is *abi.RequestError, *Refused, *OpError or
// ErrPending.
func (r *Running) Operate(ctx context.Context, op abi.Op) (terms.Result, error) {
	if e, _ := abi.Lookup(op.Import()); e.Many() && !r.Call.InOrder() {
		r.turn.RLock()
		defer r.turn.RUnlock()
	} else {
		r.turn.Lock()
		defer r.turn.Unlock()
	}
	for n := 0; ; n++ {
		res, err := r.operate(ctx, op)
		if refused := (*terms.Refused)(nil); n > 0 && errors.As(err, &refused) {
			refused.Denied = append(refused.Denied, terms.Reason{ID: "next",
				Msg: fmt.Sprintf("the %s before this one was done, and led here", op.Import())})
		}
		if err != nil || res.Next == nil {
			return res, err
		}
		if n == maxNext || res.Next.Import() != op.Import() {
			return terms.Result{}, r.note(terms.Fail("too_many",
				"%s led to %d more operations, or to one of another kind", op.Import(), n+1))
		}
		op = res.Next
	}
}

func (r *Running) operate(ctx context.Context, op abi.Op) (terms.Result, error) {
	if err := r.may(op); err != nil {
		return terms.Result{}, err
	}
	q, err := r.question(op)
	if err != nil {
		return terms.Result{}, err
	}
	exec := r.st.Executors[op.Import()]
	if exec == nil {
		return terms.Result{}, &abi.RequestError{Field: "import",
			Message: op.Import() + " is not available on this host"}
	}
	if entry, _ := abi.Lookup(op.Import()); entry.Lookup {
		if err := r.lookup(ctx, exec, &q); err != nil {
			return terms.Result{}, err
		}
	}
	res, err := r.effect(ctx, exec, q)
	refused := (*terms.Refused)(nil)
	if errors.As(err, &refused) && waits(refused.Decision) {
		q.Units, q.Lacks = refused.Decision.Units, refused.Decision.Lacks
		if err := r.lookup(ctx, exec, &q); err != nil {
			return terms.Result{}, err
		}
		res, err = r.effect(ctx, exec, q)
	}
	if r.Call.Planning && errors.As(err, &refused) && refused.Decision.Tier != terms.Green {
		r.step(q, refused.Decision)
	}
	return res, r.note(err)
}

// lookup decides and finds the facts of a question.
func (r *Running) lookup(ctx context.Context, exec terms.Executor, q *terms.Question) error {
	look := func(ctx context.Context, q terms.Question, _ terms.Decision,
		_ *terms.Record) (terms.Facts, error) {
		return exec.Lookup(ctx, q)
	}
	q.Phase = terms.PhaseLookup
	facts, err := pass(ctx, r.st, *q, look)
	if n := q.Op.NodeName(); r.Call.Planning && facts.Touches != nil {
		facts.Touches = append(slices.Clone(r.touched[n]), facts.Touches...)
		if r.touched == nil {
			r.touched = map[string][]terms.Touched{}
		}
		r.touched[n] = facts.Touches
	}
	q.Phase, q.Facts = terms.PhaseEffect, facts
	return r.note(err)
}

// effect decides the operation and executes it, unless the call is planned and it is above green.
func (r *Running) effect(ctx context.Context, exec terms.Executor, q terms.Question) (terms.Result,
	error) {
	if r.Call.Planning && q.Facts.Touches == nil {
		q.Facts.Touches = r.touched[q.Op.NodeName()]
	}
	if p := r.Call.Plan; p != nil {
		facts := p.Next(q)
		q.Facts.Plan = &facts
	}
	act := func(ctx context.Context, q terms.Question, d terms.Decision,
		rec *terms.Record) (terms.Result, error) {
		above := d.Tier != terms.Green
		r.started(above)
		if above && r.Call.Planning {
			rec.Outcome = terms.Planned
			return r.plan(q, d)
		}
		res, err := exec.Execute(ctx, q, d)
		if _, asks := q.Op.(abi.Ask); !asks && errors.Is(err, terms.ErrPending) {
			err = terms.Fail("failed", "%s cannot wait", q.Op.Import())
		}
		r.made(q.Op, res)
		if op := (*terms.OpError)(nil); above && errors.As(err, &op) &&
			op.Outcome == terms.Unknown {
			r.unknown.Store(true)
		}
		rec.Exit, rec.Bytes, rec.SHA256, rec.Hits = res.Exit, res.Bytes, res.SHA256, res.Hits
		return res, err
	}
	return pass(ctx, r.st, q, act)
}

// question returns the question of an operation, with its node and its lowered command.
func (r *Running) question(op abi.Op) (terms.Question, error) {
	q := terms.Question{Kind: terms.KindOperation, Call: r.Call, Op: op, Progress: r.Progress}
	if name := op.NodeName(); name != "" {
		if q.Node = r.Call.Node(name); q.Node == nil {
			return q, &abi.RequestError{Field: "node", Message: "is not in the inventory"}
		}
	}
	switch op := op.(type) {
	case abi.SSHExec:
		cmd := r.st.Lowerer.Argv(op.Argv)
		q.Cmd = &cmd
	case abi.SSHScript:
		cmd := r.st.Lowerer.Script(op.Script)
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
	case r.ended.Load():
		return &abi.RequestError{Field: "call", Message: "has ended"}
	case r.asked > maxOps:
		return &abi.RequestError{Field: "call",
			Message: fmt.Sprintf("has asked for %d operations, which is the limit", maxOps)}
	case len(r.steps) > maxSteps: // nothing more can come of it
		return &abi.RequestError{Field: "call", Message: "is planned, and " + tooManySteps}
	case asks && r.effects:
		return &abi.RequestError{Field: "call",
			Message: "has already done something above green: ask before that"}
	case !asks && r.pending:
		return &abi.RequestError{Field: "call",
			Message: "waits for an answer (status 5): return, and it starts again with it"}
	}
	return nil
}

func (r *Running) over() bool { return r.ended.Load() }

// started notes that an operation begins. One above green takes its step of the call's plan.
func (r *Running) started(above bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.effects = r.effects || above
	if above && r.Call.Plan != nil {
		r.Call.Plan.Take()
	}
}

// made keeps what now belongs to the call.
func (r *Running) made(op abi.Op, res terms.Result) {
	if res.Stage != nil {
		r.Call.Stages = append(r.Call.Stages, *res.Stage)
	}
	if v, is := res.Value.(abi.BlobWriteResponse); is {
		r.Call.Blobs = append(r.Call.Blobs, v.Blob)
	}
	if v, is := res.Value.(abi.HTTPResponse); is && v.Blob != "" && success.Saves(op) {
		r.Call.Blobs = append(r.Call.Blobs, v.Blob)
	}
}

const tooManySteps = "a plan has at most %d steps"

// step adds a step to the plan. The last one says that more were asked for: then it reports false.
func (r *Running) step(q terms.Question, d terms.Decision) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.steps) == maxSteps {
		d = deny("steps", fmt.Sprintf(tooManySteps, maxSteps))
	}
	if len(r.steps) <= maxSteps {
		now := *q.Call // with the stages and blobs that it has by now
		q.Call = &now
		r.steps = append(r.steps, terms.Step{Question: q, Decision: d})
	}
	return len(r.steps) <= maxSteps
}

// plan records an operation instead of executing it. The instance gets what success looks like.
func (r *Running) plan(q terms.Question, d terms.Decision) (terms.Result, error) {
	switch {
	case !r.step(q, d):
		return terms.Result{}, terms.Fail("too_many", tooManySteps, maxSteps)
	case !r.Call.Tool.Plans:
		return terms.Result{}, terms.Fail("planning",
			"the call is only planned, and this plugin was built "+
				"for an ABI that cannot go on from here")
	}
	res := terms.Result{Plan: true}
	res.Value = success.Of(q.Op, len(r.Call.Stages)+len(r.Call.Blobs)+1)
	switch v := res.Value.(type) {
	case abi.StageResponse:
		res.Stage = &terms.StageDir{Node: q.Op.NodeName(), Dir: v.Dir}
	case abi.WriteResponse:
		if put, is := q.Op.(abi.SFTPPut); is && q.Facts.File != nil {
			v.Bytes, v.SHA256 = q.Facts.File.LocalBytes, r.Call.Files[put.Local]
			res.Value = v
		}
	}
	r.made(q.Op, res)
	return res, nil
}

// note remembers a refusal, so that a plugin cannot hide it, and makes every other error an
// *OpError.
func (r *Running) note(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	refused, op := (*terms.Refused)(nil), (*terms.OpError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		if r.refusals++; len(r.refused) < keptRefused {
			r.refused = append(r.refused, refused)
		}
		return refused
	case errors.Is(err, terms.ErrPending):
		r.pending = true
		return terms.ErrPending
	case !errors.As(err, &op):
		op = terms.Fail("failed", "%v", err)
	}
	return op
}

// end ends the call, then frees what belongs to it, also when it was cancelled.
func (r *Running) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	r.ended.Store(true)
	for _, e := range r.st.ends {
		e.End(ctx, r.Call)
	}
}

// outcome trusts what the host saw over what the plugin returned.
func (r *Running) outcome(out terms.Output, err error) terms.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.unknown.Load():
		return terms.Unknown
	case err == nil && out.Code != 0 && r.pending:
		return terms.Waits
	case len(r.steps) > 0 && err == nil: // without any, the dry run was all that there is to do
		return terms.Planned
	case err != nil || out.Code != 0:
		return terms.Failed
	}
	return terms.Succeeded
}
