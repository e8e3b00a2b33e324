// Package gate is the one way to an effect. It decides each tool call, and each operation of a
// running tool. It journals the decision, and then acts on the very value that was decided.
//
// Its vocabulary is package terms. It imports that and sdk/abi, the wire, alone. Only pass
// has a [Runner] run, or reaches a [terms.Executor]; a test over all of host holds that.
package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// Door decides calls and operations, and is the only way to the parts that act. Its parts cannot be
// changed. It is safe for concurrent use.
type Door struct {
	o      Options
	runner Runner
}

// New returns a door with these parts, which runs plugins on runner.
func New(o Options, runner Runner) *Door {
	if o.Decider == nil || o.Journal == nil || o.Ledger == nil || o.Lowerer == nil ||
		runner == nil || o.Throttle == nil || o.Mode == nil {
		panic("gate: New needs Decider, Journal, Ledger, Lowerer, Throttle, Mode and a Runner")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.MaxArgs = cmp.Or(o.MaxArgs, 1<<20)
	o.Executors, o.ends = maps.Clone(o.Executors), nil
	for _, e := range o.Executors {
		if !reflect.ValueOf(e).Comparable() || !slices.Contains(o.ends, e) {
			o.ends = append(o.ends, e)
		}
	}
	return &Door{o, runner}
}

// Call takes a request through the door: decode, decide, wait for a person where policy asks for
// one and decide again, run. It always returns an Answer.
func (d *Door) Call(ctx context.Context, req terms.Request) terms.Answer {
	c := &terms.Call{ID: newID(d.o.Now()), Source: req.Source, Trace: req.Trace,
		Principal: req.Principal, Tool: req.Tool, Nodes: d.o.Nodes, User: req.User,
		Confirmation: terms.Confirmation{State: "none"}, Planning: req.Plan}
	st := &state{Options: &d.o, current: req.Current}
	var a terms.Answer
	wait, unrecorded := d.o.Throttle.Wait(req.Principal.ID, d.o.Now())
	if wait > 0 { // its calls came to nothing too often: nothing is decided
		dec := deny("refusals", fmt.Sprintf("too many calls of this principal came to nothing "+
			"within a minute; it may call again in %d s", int(wait/time.Second)+1))
		a = terms.Answer{CallID: c.ID, Outcome: terms.Refusal,
			Err: refused(d.refuse(ctx, st, c, dec, unrecorded, unrecorded > 0), dec)}
	} else if a = d.call(ctx, st, req, c); a.Outcome == terms.Refusal || a.Outcome == terms.Waits {
		d.o.Throttle.Note(req.Principal.ID, d.o.Now(), time.Duration(st.spent.Load()))
	}
	a.JournalFailed = st.unwritten.Load()
	return a
}

// refuse makes the record of a refusal that pass did not, for others too, and journals it if kept.
func (d *Door) refuse(ctx context.Context, st *state, c *terms.Call, dec terms.Decision, others int,
	keep bool) terms.Record {
	now := d.o.Now()
	rec := terms.NewRecord(terms.Question{ID: newID(now), Time: now, Kind: terms.KindCall, Call: c},
		dec)
	rec.Refused = others
	if keep && d.o.Journal.Intent(ctx, rec, false) != nil {
		st.unwritten.Store(true)
	}
	return rec
}

func (d *Door) call(ctx context.Context, st *state, req terms.Request, c *terms.Call) terms.Answer {
	err := st.decode(ctx, req, c)
	a := terms.Answer{CallID: c.ID, Outcome: terms.Refusal}
	if req.Plan && d.o.Planner == nil {
		err = errors.New("this host makes no plans")
	}
	if err != nil {
		a.Err = &terms.InvalidArguments{Tool: req.Tool.Name, Err: err}
		d.refuse(ctx, st, c, deny("arguments", err.Error()), 0, true)
		return a
	}
	r := &Running{Call: c, Round: max(req.Round, 1), st: st, progress: req.Progress, log: req.Log}
	d.passCall(ctx, r, &a)
	var refused *terms.Refused
	asks := errors.As(a.Err, &refused) && refused.NeedsApproval && d.o.Confirmer != nil
	if first := errors.Is(a.Err, terms.ErrPlanFirst) && d.o.Planner != nil; !asks && !first {
		return a
	}
	if d.o.Planner != nil {
		dry, p := *c, terms.Answer{Outcome: terms.Refusal}
		dry.ID, dry.Planning = newID(d.o.Now()), true
		p.CallID = dry.ID
		plan := &Running{Call: &dry, Round: r.Round, st: st, progress: r.progress, log: r.log}
		if d.passCall(ctx, plan, &p); p.Plan == nil || p.Err != nil {
			return p // refused, waits for an answer, or nothing above green is left to do
		}
		c.Plan = p.Plan
	}
	if asks {
		c.Confirmation, err = d.o.Confirmer.Confirm(ctx, c, refused.Decision, r.tell)
	}
	if err == nil {
		d.passCall(ctx, r, &a)
		return a
	}
	a.Err = err
	if errors.Is(err, terms.ErrWaiting) {
		a.Outcome = terms.Waits
	}
	if no := (*terms.Refused)(nil); errors.As(err, &no) { // a denial, or nobody could be asked
		no.DecisionID = d.refuse(ctx, st, c, terms.Decision{Tier: refused.Decision.Tier,
			Failed: no.Failed,
			Denied: no.Denied, Revision: refused.Decision.Revision}, 0, true).ID
	}
	return a
}

// passPlan decides whether a person may be asked about the plan of a call.
func (d *Door) passPlan(ctx context.Context, r *Running, a *terms.Answer) {
	c := *r.Call
	c.Plan = d.o.Planner.Plan(&c, r.steps, *a)
	keep := func(_ context.Context, _ terms.Question, _ terms.Decision,
		rec *terms.Record) (terms.Plan, error) {
		rec.Outcome = terms.Planned
		return c.Plan, nil
	}
	a.Plan = c.Plan
	q := terms.Question{Kind: terms.KindPlan, Call: &c, Steps: r.steps}
	if _, a.Err = pass(ctx, r.st, q, keep); a.Err != nil {
		a.Outcome = terms.Refusal
	}
}

// passCall takes the call through pass, and runs it where that is allowed.
func (d *Door) passCall(ctx context.Context, r *Running, a *terms.Answer) {
	run := func(ctx context.Context, _ terms.Question, dec terms.Decision,
		rec *terms.Record) (terms.Output, error) {
		if dec.Obligations.Plan && r.Call.Plan == nil && !r.Call.Planning {
			return terms.Output{}, terms.ErrPlanFirst
		}
		r.Call.Decided, a.Tier, a.Outcome = dec, dec.Tier, terms.Unknown
		if err := d.runner.Ready(ctx, r.Call, r.tell); err != nil {
			a.Outcome = terms.Failed
			return terms.Output{}, err
		}
		out, err := d.run(ctx, r, dec)
		a.Outcome, a.Refused, a.Output = r.outcome(out, err), r.refused, out
		notes := out.Notes // a copy, so that the record does not keep the output
		rec.Outcome, rec.Bytes, rec.Refused, rec.Notes, rec.Hits = a.Outcome,
			int64(len(out.JSON)), r.refusals, &notes, out.Hits
		return out, err
	}
	_, a.Err = pass(ctx, r.st, terms.Question{Kind: terms.KindCall, Call: r.Call}, run)
	if a.Outcome == terms.Planned {
		d.passPlan(ctx, r, a)
	}
}

// run runs the plugin within the budget of the call.
func (d *Door) run(ctx context.Context, r *Running, dec terms.Decision) (terms.Output, error) {
	c, t := r.Call, r.Call.Tool
	r.Nodes = d.nodes(ctx, c)
	limit := t.Budget
	if o := dec.Obligations.Timeout; limit <= 0 || o > 0 && o < limit {
		limit = o
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		&terms.BudgetError{Tool: t.Name, CallID: r.Call.ID, Limit: limit})
	defer cancel()
	defer r.end(ctx) // also after a panic: the call's stages must not stay
	out, err := d.runner.Run(ctx, r)
	if budget := (*terms.BudgetError)(nil); errors.As(err, &budget) {
		budget.MayHaveExecuted = r.effects && !r.Call.Planning
	}
	return out, err
}

// nodes returns the nodes that the plugin of a call is told of.
func (d *Door) nodes(ctx context.Context, c *terms.Call) (seen []terms.Node) {
	o, mode := d.o, d.o.Mode(ctx) // one for all of them
	o.Mode = func(context.Context) terms.Mode { return mode }
	for _, n := range o.Nodes {
		if o.sees(ctx, c.Principal, c.Source, c.Tool, terms.Targets{Nodes: []string{n.Name}}) {
			seen = append(seen, n)
		}
	}
	return seen
}

// Visible reports whether the principal may see the tool in a list, and among its targets the node
// or guest that on names. It is decided but not journaled, since a list has no effect.
func (d *Door) Visible(ctx context.Context, p terms.Principal, source string, t *terms.Tool,
	on terms.Targets) bool {
	return d.o.sees(ctx, p, source, t, on)
}

func (o *Options) sees(ctx context.Context, p terms.Principal, source string, t *terms.Tool,
	on terms.Targets) bool {
	q := terms.Question{ID: "list", Kind: terms.KindVisible, Call: &terms.Call{Source: source,
		Principal: p, Tool: t, Targets: on, Nodes: o.Nodes}}
	dec, _ := (&state{Options: o}).decide(ctx, &q)
	return dec.Allow
}
