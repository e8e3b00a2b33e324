package gate

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

const maxShown = 1000 // lists of nodes that are kept

// Options wires a Door. Confirmer may be nil: then what needs a confirmation is refused.
type Options struct {
	Nodes     []Node
	Decider   Decider
	Journal   Journal
	Ledger    Ledger
	Confirmer Confirmer
	Lowerer   Lowerer
	Runner    Runner
	Executors map[string]Executor // by import; an import without one is refused
	Mode      func() Mode         // read at each decision
	// Files digests those of a call's local files that exist, so that an approval is for these
	// bytes and an upload sends them. Nil for none.
	Files func(Principal, []string) (map[string]string, error)
	// Withheld says why a tool of the lock is neither listed nor called here, "" for one that is.
	// Nil withholds nothing.
	Withheld func(*Tool) string
	// read at each decision too: what it names is frozen though Mode is not; nil freezes nothing
	// more
	Frozen  func(Question) (reason string, frozen bool)
	Now     func() time.Time // nil for time.Now
	MaxArgs int              // bytes of a call's arguments, 0 for 1 MiB
}

// Door is safe for concurrent use.
type Door struct {
	Options

	refusals throttle

	mu    sync.Mutex // guards shown
	shown map[string][]Node
}

// New makes a door. It panics when a part is missing: that is a wiring mistake, and a door without
// one of its parts would be no door.
func New(o Options) *Door {
	if o.Decider == nil || o.Journal == nil || o.Ledger == nil || o.Lowerer == nil ||
		o.Runner == nil ||
		o.Mode == nil {
		panic("gate: New needs Decider, Journal, Ledger, Lowerer, Runner and Mode")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.MaxArgs = cmp.Or(o.MaxArgs, 1<<20)
	return &Door{Options: o}
}

// pass is the only way through: decide, journal the intent, refuse or act on the very question that
// was decided, journal the outcome. Whatever goes wrong before act is a refusal.
func pass[T any](
	ctx context.Context,
	d *Door,
	q Question,
	act func(context.Context, Question, Decision) (T, Record, error),
) (T, bool, error) {
	var none T
	q.ID, q.Time, q.Mode = newID(d.Now()), d.Now(), d.Mode()
	if d.Frozen != nil && !q.Mode.Frozen {
		q.Mode.Reason, q.Mode.Frozen = d.Frozen(q)
	}
	dec, giveBack := d.decide(ctx, q)
	rec := record(q, dec)
	if dec.NeedsApproval && d.Confirmer != nil { // refused for now
		rec.Outcome = Waits
	}
	if err := d.Journal.Intent(ctx, rec, dec.Allow && (q.Kind == KindCall || dec.Tier != Green)); err != nil &&
		dec.Allow {
		dec = deny(
			"journal.unavailable",
			"the journal cannot be written, so nothing may be done: "+err.Error(),
		)
	}
	if !dec.Allow {
		giveBack()
		return none, false, &Refused{
			DecisionID:    q.ID,
			Kind:          rec.Kind,
			Op:            rec.Op,
			Phase:         rec.Phase,
			Failed:        dec.Failed,
			Denied:        dec.Denied,
			NeedsApproval: dec.NeedsApproval,
			Decision:      dec,
		}
	}
	began := d.Now()
	out, done, err := guarded(ctx, q, dec, act)
	rec.Type, rec.Time, rec.Input, rec.Masked, rec.DurationUS = "outcome", d.Now(), nil, false, d.Now().
		Sub(began).
		Microseconds()
	rec.Outcome, rec.Code, rec.Exit, rec.Bytes, rec.SHA256, rec.Refused, rec.Notes = done.Outcome, done.Code, done.Exit, done.Bytes, done.SHA256, done.Refused, done.Notes
	journalFailed := d.Journal.Outcome(context.WithoutCancel(ctx), rec) != nil
	return out, journalFailed, err
}

// guarded makes a panic of whoever acts an outcome that nobody knows: it is journaled, and the
// process goes on.
func guarded[T any](
	ctx context.Context,
	q Question,
	dec Decision,
	act func(context.Context, Question, Decision) (T, Record, error),
) (out T, done Record, err error) {
	defer func() {
		if p := recover(); p != nil {
			slog.Error("the host broke while acting", "panic", p, "stack", string(debug.Stack()))
			done, err = Record{
				Outcome: Unknown,
				Code:    "panic",
			}, &OpError{
				Code:    "panic",
				Message: "the host broke while doing this, and what it did is not known",
				Outcome: Unknown,
			}
		}
	}()
	return act(ctx, q, dec)
}

func deny(id, msg string) Decision {
	return Decision{Failed: []string{id}, Denied: []Reason{{ID: id, Msg: msg}}}
}

// decide turns every way of not getting an answer into a refusal.
func (d *Door) decide(ctx context.Context, q Question) (dec Decision, giveBack func()) {
	giveBack = func() {}
	defer func() {
		if p := recover(); p != nil {
			dec = deny("policy.panic", fmt.Sprint("the policy engine broke: ", p))
		}
	}()
	if d.Withheld != nil {
		if why := d.Withheld(q.Call.Tool); why != "" {
			return deny(
				"withheld",
				q.Call.Tool.Name+" is not offered by this host: it "+why,
			), giveBack
		}
	}
	if q.Kind == KindCall {
		counts, back, err := d.Ledger.Take(ctx, q.Call)
		if err != nil {
			return deny(
				"ledger.unavailable",
				"the count of calls cannot be kept: "+err.Error(),
			), giveBack
		}
		q.Facts.Counts, giveBack = counts, back
	}
	dec, err := d.Decider.Decide(ctx, q)
	switch {
	case err != nil:
		input, masked := dec.Input, dec.Masked
		giveBack = func() {} // what makes the engine fail is not for free
		dec = deny("policy.error", "the policy engine did not answer: "+err.Error())
		dec.Input, dec.Masked = input, masked
	case dec.Allow && (dec.Tier < Green || dec.Tier >= Black || len(dec.Failed)+len(dec.Denied) > 0):
		dec.Allow = false
		dec.Failed = append(dec.Failed, "policy.contradiction")
	case !dec.Allow && len(dec.Failed) == 0:
		dec.Failed = []string{"policy.undefined"}
	}
	return dec, giveBack
}

func record(q Question, dec Decision) Record {
	c := q.Call
	r := Record{
		Type:      "intent",
		Time:      q.Time,
		ID:        q.ID,
		CallID:    c.ID,
		Kind:      "call",
		Principal: c.Principal.ID,
		Source:    c.Source,
		Plugin:    c.Tool.Plugin,
		Tool:      c.Tool.Name,
		Tier:      dec.Tier.String(),
		Failed:    dec.Failed,
		Denied:    dec.Denied,
		Revision:  dec.Revision,
		Input:     dec.Input,
		Masked:    dec.Masked,
	}
	if !dec.Allow {
		r.Type = "refused"
	}
	if q.Kind == KindOperation {
		r.Kind, r.Op, r.Phase, r.CallRev = "operation", q.Op.Import(), q.Phase.String(), c.Decided.Revision
		r.Node = q.Op.NodeName()
	}
	return r
}

// Request is a tool call as it arrived. Arguments is the raw JSON object, or empty for none.
type Request struct {
	Source    string
	Principal Principal
	Tool      *Tool
	Arguments []byte
	// 1 more each time that the call's questions were answered; 0 is 1
	Round    int
	Progress func(done, total float64, message string) // may be nil
	Log      func(level int, message string)           // may be nil
}

// Answer is how a call ended. Err is *InvalidArguments, *Refused, *Waiting, *BudgetError or
// *PluginError when there is no Output.
type Answer struct {
	CallID        string
	Outcome       Outcome
	Tier          Tier
	Output        Output
	Err           error
	Refused       []*Refused // operations that were refused, whatever the guest made of it
	Nodes         []string   // that the call named, or that its operations were for
	JournalFailed bool
}

// Call takes a request through the door: decode, decide, perhaps wait for a person and decide
// again, run. It always returns an Answer.
func (d *Door) Call(ctx context.Context, req Request) Answer {
	if a, full := d.throttled(ctx, req); full {
		return a
	}
	answer := d.call(ctx, req)
	if answer.Outcome == Refusal || answer.Outcome == Waits {
		d.refusals.note(req.Principal.ID, d.Now())
	}
	return answer
}

func (d *Door) call(ctx context.Context, req Request) Answer {
	c, err := d.newCall(req)
	if err != nil {
		a := Answer{
			CallID:  c.ID,
			Outcome: Refusal,
			Err:     &InvalidArguments{Tool: req.Tool.Name, Err: err},
		}
		rec := record(
			Question{ID: newID(d.Now()), Time: d.Now(), Kind: KindCall, Call: c},
			deny("arguments", err.Error()),
		)
		a.JournalFailed = d.Journal.Intent(ctx, rec, false) != nil
		return a
	}
	r := &Running{Call: c, Round: max(req.Round, 1), door: d, progress: req.Progress, log: req.Log}
	answer := Answer{CallID: c.ID, Outcome: Refusal}
	run := func(ctx context.Context, _ Question, dec Decision) (Output, Record, error) {
		c.Decided, answer.Tier, answer.Outcome = dec, dec.Tier, Unknown
		if err := d.Runner.Ready(ctx, c.Tool); err != nil {
			answer.Outcome = Failed
			return Output{}, Record{Outcome: Failed, Code: codeOf(err)}, err
		}
		r.Nodes = d.nodes(ctx, c)
		limit := tighter(c.Tool.Budget, dec.Obligations.Timeout)
		ctx, cancel := context.WithTimeoutCause(
			ctx,
			limit,
			&BudgetError{Tool: c.Tool.Name, CallID: c.ID, Limit: limit},
		)
		defer cancel()
		out, err := func() (Output, error) {
			// also when the runner panics: the call's door must not stay open, nor its stages
			// behind
			defer r.end(ctx)
			return d.Runner.Run(ctx, r)
		}()
		if budget := (*BudgetError)(nil); errors.As(err, &budget) {
			budget.MayHaveExecuted = r.effects
		}
		answer.Outcome, answer.Refused, answer.Output = r.outcome(out, err), r.refused, out
		answer.Nodes = r.about()
		notes := out.Notes // a copy, so that whoever keeps the record does not keep the output
		return out, Record{
			Outcome: answer.Outcome,
			Code:    codeOf(err),
			Bytes:   int64(len(out.JSON)),
			Refused: r.refusals,
			Notes:   &notes,
		}, err
	}
	answer.Err = d.passCall(ctx, r, &answer, run)
	var refused *Refused
	if errors.As(answer.Err, &refused) && refused.NeedsApproval && d.Confirmer != nil {
		tell := func(message string) {
			if req.Progress != nil {
				req.Progress(0, 0, message)
			}
		}
		if c.Confirmation, err = d.Confirmer.Confirm(ctx, c, refused.Decision, tell); err != nil {
			answer.Err = err
			if waiting := (*Waiting)(nil); errors.As(err, &waiting) {
				answer.Outcome = Waits
			}
			// a person's no, or why nobody could be asked
			if no := (*Refused)(nil); errors.As(err, &no) {
				no.DecisionID = newID(d.Now())
				rec := record(
					Question{ID: no.DecisionID, Time: d.Now(), Kind: KindCall, Call: c},
					Decision{
						Tier:     refused.Decision.Tier,
						Failed:   no.Failed,
						Denied:   no.Denied,
						Revision: refused.Decision.Revision,
					},
				)
				answer.JournalFailed = d.Journal.Intent(ctx, rec, false) != nil ||
					answer.JournalFailed
			}
			return answer
		}
		answer.Err = d.passCall(ctx, r, &answer, run)
	}
	return answer
}

func (d *Door) passCall(
	ctx context.Context,
	r *Running,
	a *Answer,
	run func(context.Context, Question, Decision) (Output, Record, error),
) error {
	_, lost, err := pass(ctx, d, Question{Kind: KindCall, Call: r.Call}, run)
	a.JournalFailed = lost || r.journalFailed
	return err
}

// Visible reports whether the principal may see the tool in a list, and among what it could act on,
// the node or guest that on names, if it names one. It is decided but not journaled: a list has no
// effect.
func (d *Door) Visible(ctx context.Context, p Principal, source string, t *Tool, on Targets) bool {
	dec, _ := d.decide(
		ctx,
		Question{
			ID:   "list",
			Kind: KindVisible,
			Call: &Call{Source: source, Principal: p, Tool: t, Targets: on, Nodes: d.Nodes},
			Time: d.Now(),
			Mode: d.Mode(),
		},
	)
	return dec.Allow
}

// Readable reports whether what a call of the tool gave before may still be read: the principal may
// see the tool, and neither the two nor one of the call's nodes is frozen. Like Visible it is not
// journaled: what is read was journaled when it was called for.
func (d *Door) Readable(
	ctx context.Context,
	p Principal,
	source string,
	t *Tool,
	nodes []string,
) bool {
	frozen := d.Mode().Frozen
	if d.Frozen != nil && !frozen {
		_, frozen = d.Frozen(
			Question{
				ID:   "read",
				Kind: KindVisible,
				Call: &Call{Source: source, Principal: p, Tool: t, Targets: Targets{Nodes: nodes}},
			},
		)
	}
	return !frozen && d.Visible(ctx, p, source, t, Targets{})
}

// nodes are those of the inventory that the call's plugin is told of. What decides that is the
// revision, so that it is asked once for each.
func (d *Door) nodes(ctx context.Context, c *Call) []Node {
	key := fmt.Sprintf(
		"%s %q %s %s %q %s",
		c.Decided.Revision,
		c.Principal.ID,
		c.Principal.Auth,
		c.Source,
		c.Principal.Roles,
		c.Tool.Kind+":"+c.Tool.Name+c.Tool.Plugin.Digest,
	)
	d.mu.Lock()
	known, found := d.shown[key]
	d.mu.Unlock()
	if found {
		return known
	}
	nodes := []Node{}
	for _, n := range d.Nodes {
		if d.Visible(ctx, c.Principal, c.Source, c.Tool, Targets{Nodes: []string{n.Name}}) {
			nodes = append(nodes, n)
		}
	}
	if ctx.Err() != nil { // then none were decided about
		return nodes
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shown == nil || len(d.shown) >= maxShown {
		d.shown = map[string][]Node{}
	}
	d.shown[key] = nodes
	return nodes
}

func (d *Door) newCall(req Request) (*Call, error) {
	c := &Call{
		ID:           newID(d.Now()),
		Source:       req.Source,
		Principal:    req.Principal,
		Tool:         req.Tool,
		Nodes:        d.Nodes,
		Confirmation: Confirmation{State: "none"},
	}
	raw := req.Arguments
	if len(raw) == 0 || string(raw) == "null" { // what a client makes of no arguments
		raw = []byte("{}")
	}
	v, err := Decode(raw, d.MaxArgs)
	if err != nil {
		return c, err
	}
	args, isObject := v.(map[string]any)
	if !isObject {
		return c, errors.New("must be a JSON object")
	}
	if err := c.Tool.Validate(args); err != nil {
		return c, err
	}
	if c.Args, err = newArgs(args, c.Tool.Confirm); err != nil {
		return c, err
	}
	if on, _ := args[c.Tool.Confirm].(bool); on {
		c.Confirmation.State = "argument"
	}
	var texts []CommandText
	if c.Targets, texts, err = c.Tool.Derive(args); err != nil {
		return c, err
	}
	for _, t := range texts {
		cmd := d.Lowerer.Script(t.Text)
		cmd.Arg, cmd.Guest, cmd.Text = t.Arg, t.Guest, t.Text
		c.Commands = append(c.Commands, cmd)
	}
	if d.Files != nil && len(c.Targets.LocalPaths) > 0 {
		if c.Files, err = d.Files(c.Principal, c.Targets.LocalPaths); err != nil {
			return c, err
		}
	}
	return c, c.onNodes()
}

// onNodes gives a call that names no node the default one, and finds the clusters.
func (c *Call) onNodes() error {
	onNode := func(name string) bool {
		return len(name) > 4 && (name[:4] == "ssh_" || name[:4] == "sftp") || name == "stage"
	}
	for _, n := range c.Nodes {
		if n.Default && len(c.Targets.Nodes) == 0 && slices.ContainsFunc(c.Tool.Imports, onNode) {
			c.Targets.Nodes = []string{n.Name}
		}
	}
	for _, name := range c.Targets.Nodes {
		n := c.node(name)
		if n == nil {
			return fmt.Errorf(
				"node %q is not in the inventory ([[remote.nodes]] in the configuration)",
				name,
			)
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

const maxScalar = 256 // bytes

func newArgs(args map[string]any, confirm string) (a Args, err error) {
	a = Args{Value: args, Scalars: map[string]any{}}
	if a.JSON, err = Encode(args); err != nil {
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
	digested, err := Encode(bound)
	sum := sha256.Sum256(digested)
	a.Digest = "sha256:" + hex.EncodeToString(sum[:])
	return a, err
}

func tighter(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

// newID is 26 characters that sort by time: 48 bits of milliseconds, 80 random bits.
func newID(t time.Time) string {
	var b [16]byte
	rand.Read(b[:])
	ms := binary.BigEndian.AppendUint64(nil, uint64(t.UnixMilli()))
	copy(b[:6], ms[2:])
	return base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:])
}
