package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Request is a tool call as it arrived.
type Request struct {
	Source    string
	Principal Principal
	Tool      *Tool
	Arguments []byte // a JSON object; empty or null for none
	Round     int    // 1 more each time that the call's questions were answered; 0 is 1
	Plan      bool   // only plan the call
	// Current reports why the call may not go on: its credential was revoked, or its tool left the
	// lock. It is asked before each operation. Nil: nothing can be revoked.
	Current  func(context.Context) error
	User     User                                      // nil if the client cannot ask one
	Progress func(done, total float64, message string) // may be nil
	Log      func(level int, message string)           // may be nil
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

// Call takes a request through the door: decode, decide, wait for a person where policy asks for
// one and decide again, run. It always returns an Answer.
func (d *Door) Call(ctx context.Context, req Request) Answer {
	if a, full := d.throttled(ctx, req); full {
		return a
	}
	c := &Call{ID: newID(d.o.Now()), Source: req.Source, Principal: req.Principal, Tool: req.Tool,
		Nodes: d.o.Nodes, Confirmation: Confirmation{State: "none"}, User: req.User,
		Planning: req.Plan, current: req.Current, spent: new(atomic.Int64)}
	a := d.call(ctx, req, c)
	if a.Outcome == Refusal || a.Outcome == Waits {
		d.o.Throttle.Note(req.Principal.ID, d.o.Now(), time.Duration(c.spent.Load()))
	}
	return a
}

func (d *Door) call(ctx context.Context, req Request, c *Call) Answer {
	err := d.decode(ctx, req, c)
	a := Answer{CallID: c.ID, Outcome: Refusal}
	if req.Plan && d.o.Planner == nil {
		err = errors.New("this host makes no plans")
	}
	if err != nil {
		a.Err = &InvalidArguments{Tool: req.Tool.Name, Err: err}
		d.refuse(ctx, c, newID(d.o.Now()), deny("arguments", err.Error()), &a)
		return a
	}
	r := &Running{Call: c, Round: max(req.Round, 1), door: d, progress: req.Progress, log: req.Log}
	d.passCall(ctx, r, &a)
	var refused *Refused
	asks := errors.As(a.Err, &refused) && refused.NeedsApproval && d.o.Confirmer != nil
	if first := errors.Is(a.Err, errPlanFirst) && d.o.Planner != nil; !asks && !first {
		return a
	}
	if d.o.Planner != nil {
		dry, p := *c, Answer{Outcome: Refusal}
		dry.ID, dry.Planning = newID(d.o.Now()), true
		p.CallID = dry.ID
		plan := &Running{Call: &dry, Round: r.Round, door: d, progress: r.progress, log: r.log}
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
	if errors.Is(err, ErrWaiting) {
		a.Outcome = Waits
	}
	if no := (*Refused)(nil); errors.As(err, &no) { // a denial, or nobody could be asked
		no.DecisionID = newID(d.o.Now())
		d.refuse(ctx, c, no.DecisionID, Decision{Tier: refused.Decision.Tier, Failed: no.Failed,
			Denied: no.Denied, Revision: refused.Decision.Revision}, &a)
	}
	return a
}

// passPlan decides whether a person may be asked about the plan of a call.
func (d *Door) passPlan(ctx context.Context, r *Running, a *Answer) {
	c := *r.Call
	c.Plan = d.o.Planner.Plan(&c, r.steps, *a)
	keep := func(context.Context, Question, Decision) (Plan, Record, error) {
		return c.Plan, Record{Outcome: Planned}, nil
	}
	q, failed := Question{Kind: KindPlan, Call: &c, Steps: r.steps}, false
	a.Plan = c.Plan
	_, failed, a.Err = pass(ctx, d, q, keep)
	a.JournalFailed = a.JournalFailed || failed
	if a.Err != nil {
		a.Outcome = Refusal
	}
}

// refuse journals a refusal that pass did not.
func (d *Door) refuse(ctx context.Context, c *Call, id string, dec Decision, a *Answer) {
	rec := record(Question{ID: id, Time: d.o.Now(), Kind: KindCall, Call: c}, dec)
	a.JournalFailed = d.o.Journal.Intent(ctx, rec, false) != nil || a.JournalFailed
}

// throttled refuses a principal whose calls came to nothing too often, before anything is decided.
func (d *Door) throttled(ctx context.Context, req Request) (a Answer, full bool) {
	wait, unrecorded := d.o.Throttle.Wait(req.Principal.ID, d.o.Now())
	if wait <= 0 {
		return a, false
	}
	dec := deny("refusals", fmt.Sprintf("too many calls of this principal came to nothing within "+
		"a minute; it may call again in %d s", int(wait/time.Second)+1))
	c := &Call{ID: newID(d.o.Now()), Source: req.Source, Principal: req.Principal, Tool: req.Tool}
	rec := record(Question{ID: newID(d.o.Now()), Time: d.o.Now(), Kind: KindCall, Call: c}, dec)
	rec.Refused = unrecorded
	a = Answer{CallID: c.ID, Outcome: Refusal, Err: &Refused{DecisionID: rec.ID, Kind: rec.Kind,
		Failed: dec.Failed, Denied: dec.Denied, Decision: dec}}
	if unrecorded > 0 {
		a.JournalFailed = d.o.Journal.Intent(ctx, rec, false) != nil
	}
	return a, true
}

// passCall takes the call through pass, and runs it where that is allowed.
func (d *Door) passCall(ctx context.Context, r *Running, a *Answer) {
	run := func(ctx context.Context, _ Question, dec Decision) (Output, Record, error) {
		if dec.Obligations.Plan && r.Call.Plan == nil && !r.Call.Planning {
			return Output{}, Record{Outcome: Waits}, errPlanFirst
		}
		r.Call.Decided, a.Tier, a.Outcome = dec, dec.Tier, Unknown
		if err := d.o.Runner.Ready(ctx, r.Call.Tool, r.tell); err != nil {
			a.Outcome = Failed
			return Output{}, Record{Outcome: Failed, Code: codeOf(err)}, err
		}
		out, err := d.run(ctx, r, dec)
		a.Outcome, a.Refused, a.Output = r.outcome(out, err), r.refused, out
		notes := out.Notes // a copy, so that the record does not keep the output
		return out, Record{Outcome: a.Outcome, Code: codeOf(err), Bytes: int64(len(out.JSON)),
			Refused: r.refusals, Notes: &notes}, err
	}
	_, failed, err := pass(ctx, d, Question{Kind: KindCall, Call: r.Call}, run)
	a.Err, a.JournalFailed = err, failed || r.journalFailed
	if a.Outcome == Planned {
		d.passPlan(ctx, r, a)
	}
}

// run runs the plugin within the budget of the call.
func (d *Door) run(ctx context.Context, r *Running, dec Decision) (Output, error) {
	r.Nodes = d.visibleNodes(ctx, r.Call)
	t := r.Call.Tool
	limit := t.Budget
	if o := dec.Obligations.Timeout; limit <= 0 || o > 0 && o < limit {
		limit = o
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		&BudgetError{Tool: t.Name, CallID: r.Call.ID, Limit: limit})
	defer cancel()
	defer r.end(ctx) // also after a panic: the call's stages must not stay
	out, err := d.o.Runner.Run(ctx, r)
	if budget := (*BudgetError)(nil); errors.As(err, &budget) {
		budget.MayHaveExecuted = r.effects && !r.Call.Planning
	}
	return out, err
}

// decode makes a request the one value that is decided, journaled and executed.
func (d *Door) decode(ctx context.Context, req Request, c *Call) error {
	end, err := d.turn(ctx, c)
	if err != nil {
		return err
	}
	defer end()
	raw := req.Arguments
	if len(raw) == 0 || string(raw) == "null" {
		raw = []byte("{}")
	}
	v, err := abi.Decode(raw, d.o.MaxArgs)
	if err != nil {
		return err
	}
	args, isObject := v.(map[string]any)
	if !isObject {
		return errors.New("must be a JSON object")
	}
	if err := c.Tool.Validate(args); err != nil {
		return err
	}
	if c.Args, err = newArgs(args, c.Tool.Confirm); err != nil {
		return err
	}
	if on, _ := args[c.Tool.Confirm].(bool); on {
		c.Confirmation.State = "argument"
	}
	var texts []CommandText
	if c.Targets, texts, err = c.Tool.Derive(c.Principal, args); err != nil {
		return err
	}
	for _, t := range texts {
		cmd := d.o.Lowerer.Script(t.Text)
		cmd.Arg, cmd.Guest, cmd.Text = t.Arg, t.Guest, t.Text
		c.Commands = append(c.Commands, cmd)
	}
	if d.o.Files != nil && len(c.Targets.LocalPaths) > 0 {
		if c.Files, err = d.o.Files(c.Principal, c.Targets.LocalPaths); err != nil {
			return err
		}
	}
	return c.setNodes()
}

// setNodes adds the default node to a call that names none and needs one, and finds the clusters.
func (c *Call) setNodes() error {
	onNode := func(name string) bool { op, _ := abi.Lookup(name); return op.OnNode }
	var names []string
	for _, n := range c.Nodes {
		names = append(names, n.Name)
		if n.Default && len(c.Targets.Nodes) == 0 && slices.ContainsFunc(c.Tool.Imports, onNode) {
			c.Targets.Nodes = []string{n.Name}
		}
	}
	for _, name := range c.Targets.Nodes {
		n := c.node(name)
		if n == nil {
			return fmt.Errorf("node %q is not in the inventory, which has %s", name,
				strings.Join(names, ", "))
		}
		c.Clusters = append(c.Clusters, n.Cluster)
	}
	slices.Sort(c.Clusters)
	c.Clusters = slices.Compact(c.Clusters)
	return nil
}

func (c *Call) node(name string) *Node {
	if i := slices.IndexFunc(c.Nodes, func(n Node) bool { return n.Name == name }); i >= 0 {
		return &c.Nodes[i]
	}
	return nil
}

// Rendered returns, by argument, the renderings of the command texts for guests that could be
// lowered. They are what such a command may run, since they are what was decided.
func (c *Call) Rendered() map[string]string {
	texts := map[string]string{}
	for _, cmd := range c.Commands {
		if cmd.Guest && cmd.Parsed {
			texts[cmd.Arg] = cmd.Rendered
		}
	}
	return texts
}

const maxScalar = 256 // bytes

func newArgs(args map[string]any, confirm string) (a Args, err error) {
	a = Args{Value: args, Scalars: map[string]any{}}
	if a.JSON, err = abi.Encode(args); err != nil {
		return a, err
	}
	bound := map[string]any{}
	for k, v := range args {
		if k != confirm {
			bound[k] = v
		}
		switch v := v.(type) {
		case bool, int64:
			a.Scalars[k] = v
		case string:
			if len(v) <= maxScalar {
				a.Scalars[k] = v
			}
		}
		if _, short := a.Scalars[k]; !short {
			a.Omitted = append(a.Omitted, k)
		}
	}
	slices.Sort(a.Omitted)
	digested, err := abi.Encode(bound)
	sum := sha256.Sum256(digested)
	a.Digest = "sha256:" + hex.EncodeToString(sum[:])
	return a, err
}
