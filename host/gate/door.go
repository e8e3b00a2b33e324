package gate

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"time"
)

// Options are the parts of a [Door]. New panics without Decider, Journal, Ledger, Lowerer, Runner,
// Throttle or Mode.
type Options struct {
	Nodes     []Node
	Decider   Decider
	Journal   Journal
	Ledger    Ledger
	Confirmer Confirmer // nil: a call that needs a confirmation is refused
	Planner   Planner   // nil: no call is planned, and approvals bind arguments alone
	Lowerer   Lowerer
	Runner    Runner
	Throttle  Throttle
	Turns     Turns               // nil: nobody waits for a turn
	Executors map[string]Executor // by import; an import without one is refused
	Mode      func() Mode         // read at each decision
	// Files returns the SHA-256 of the local files that exist, so that an approval binds their
	// bytes. Nil: none.
	Files func(Principal, []string) (map[string]string, error)
	// Guests asks a cluster for facts that a decision lacks; those that it cannot get are missing.
	// Nil: such a decision is a refusal.
	Guests func(context.Context, Question, Decision) map[string]Guest
	// HiddenReason returns why this host does not offer a tool, "" if it does. Nil: it offers all.
	HiddenReason func(*Tool) string
	Now          func() time.Time // nil: time.Now
	MaxArgs      int              // bytes of a call's arguments; 0: 1 MiB
}

// Door decides calls and operations, and is the only way to the parts that act. Its parts cannot be
// changed. It is safe for concurrent use.
type Door struct{ o Options }

// New returns a door with these parts.
func New(o Options) *Door {
	if o.Decider == nil || o.Journal == nil || o.Ledger == nil || o.Lowerer == nil ||
		o.Runner == nil || o.Throttle == nil || o.Mode == nil {
		panic("gate: New needs Decider, Journal, Ledger, Lowerer, Runner, Throttle and Mode")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.MaxArgs = cmp.Or(o.MaxArgs, 1<<20)
	o.Executors = maps.Clone(o.Executors)
	return &Door{o: o}
}

// pass is the only way to an effect: decide, journal the intent, refuse or act on the very question
// that was decided, journal the outcome. Each error before act is a refusal.
func pass[T any](ctx context.Context, d *Door, q Question,
	act func(context.Context, Question, Decision) (T, Record, error),
) (result T, journalFailed bool, err error) {
	q.ID, q.Time, q.Mode = newID(d.o.Now()), d.o.Now(), d.o.Mode()
	dec, giveBack := d.decide(ctx, q)
	rec := record(q, dec)
	if dec.NeedsApproval && d.o.Confirmer != nil || dec.waits() { // refused for now
		rec.Outcome = Waits
	}
	// One sync covers every intent before it, the call's included. So only what can have an effect
	// waits for the disk.
	durable := dec.Allow && q.Kind == KindOperation && dec.Tier != Green && !q.Call.Planning
	if err := d.o.Journal.Intent(ctx, rec, durable); err != nil && dec.Allow {
		dec = deny("journal.unavailable",
			"the journal cannot be written, so nothing may be done: "+err.Error())
	}
	if !dec.Allow {
		giveBack()
		return result, false, &Refused{DecisionID: q.ID, Kind: rec.Kind, Op: rec.Op,
			Phase: rec.Phase, Failed: dec.Failed, Denied: dec.Denied,
			NeedsApproval: dec.NeedsApproval, Decision: dec}
	}
	began := d.o.Now()
	result, done, err := guarded(ctx, q, dec, act)
	rec.finish(done, d.o.Now(), began)
	journalFailed = d.o.Journal.Outcome(context.WithoutCancel(ctx), rec) != nil
	return result, journalFailed, err
}

// guarded turns a panic of act into an unknown outcome, so that it is journaled and the process
// goes on.
func guarded[T any](ctx context.Context, q Question, dec Decision,
	act func(context.Context, Question, Decision) (T, Record, error),
) (out T, done Record, err error) {
	defer func() {
		if p := recover(); p != nil {
			slog.Error("the host panicked while acting", "panic", p, "stack", string(debug.Stack()))
			done = Record{Outcome: Unknown, Code: "panic"}
			err = &OpError{Code: "panic", Outcome: Unknown,
				Message: "the host panicked while doing this; what it did is unknown"}
		}
	}()
	return act(ctx, q, dec)
}

// decide turns every way of not getting an answer into a refusal.
func (d *Door) decide(ctx context.Context, q Question) (dec Decision, giveBack func()) {
	giveBack = func() {}
	defer func() {
		if p := recover(); p != nil {
			dec = deny("policy.panic", fmt.Sprint("the policy engine panicked: ", p))
		}
	}()
	if why := d.hidden(q.Call.Tool); why != "" {
		return deny("withheld", q.Call.Tool.Name+" is not offered by this host: it "+why), giveBack
	}
	if q.Kind == KindOperation && q.Call.current != nil {
		if err := q.Call.current(ctx); err != nil {
			return deny("revoked", "the call may not go on: "+err.Error()), giveBack
		}
	}
	if q.Kind == KindCall {
		counts, back, err := d.o.Ledger.Take(ctx, q.Call)
		if err != nil {
			return deny("ledger.unavailable", "calls cannot be counted: "+err.Error()), giveBack
		}
		q.Facts.Counts, giveBack = counts, back
	}
	dec, err := d.answer(ctx, q)
	if len(dec.Guests) > 0 && d.o.Guests != nil && q.Kind != KindVisible {
		q.Facts.Guests = d.o.Guests(ctx, q, dec)
		dec, err = d.answer(ctx, q)
	}
	switch {
	case err != nil:
		failed := deny("policy.error", "the policy engine did not answer: "+err.Error())
		failed.Input, failed.Masked = dec.Input, dec.Masked
		return failed, func() {} // a question that breaks the engine counts
	case dec.Allow && (dec.Tier < Green || dec.Tier >= Black ||
		len(dec.Failed)+len(dec.Denied) > 0):
		dec.Allow = false
		dec.Failed = append(dec.Failed, "policy.contradiction")
	case !dec.Allow && len(dec.Failed) == 0:
		dec.Failed = []string{"policy.undefined"}
	}
	return dec, giveBack
}

// answer has the question decided in a turn of its principal.
func (d *Door) answer(ctx context.Context, q Question) (Decision, error) {
	end, err := d.turn(ctx, q.Call)
	if err != nil {
		return Decision{}, err
	}
	defer end()
	return d.o.Decider.Decide(ctx, q)
}

// turn waits until the host may compute for the call. The call is charged until end is called.
func (d *Door) turn(ctx context.Context, c *Call) (end func(), err error) {
	who := c.Principal.ID
	if d.o.Turns != nil {
		if err := d.o.Turns.Acquire(ctx, who); err != nil {
			return nil, err
		}
	}
	began := d.o.Now()
	return func() {
		if c.spent != nil {
			c.spent.Add(int64(d.o.Now().Sub(began)))
		}
		if d.o.Turns != nil {
			d.o.Turns.Release(who)
		}
	}, nil
}

// waits reports that only facts are missing, which can be looked up.
func (d Decision) waits() bool { return d.Units != nil || d.Lacks != nil }

func deny(id, msg string) Decision {
	return Decision{Failed: []string{id}, Denied: []Reason{{ID: id, Msg: msg}}}
}

func (d *Door) hidden(t *Tool) string {
	if d.o.HiddenReason == nil {
		return ""
	}
	return d.o.HiddenReason(t)
}

func record(q Question, dec Decision) Record {
	c := q.Call
	r := Record{Type: "intent", Time: q.Time, ID: q.ID, CallID: c.ID, Kind: "call",
		Principal: c.Principal.ID, Source: c.Source, Plugin: c.Tool.Plugin, Tool: c.Tool.Name,
		Tier: dec.Tier.String(), Failed: dec.Failed, Denied: dec.Denied, Revision: dec.Revision,
		Input: dec.Input, Masked: dec.Masked}
	if c.Plan != nil {
		r.Plan = c.Plan.Digest()
	}
	if !dec.Allow {
		r.Type = "refused"
	}
	if q.Kind == KindPlan {
		r.Kind = "plan"
	}
	if q.Kind == KindOperation {
		r.Kind, r.Op, r.Phase = "operation", q.Op.Import(), q.Phase.String()
		r.CallRev, r.Node = c.Decided.Revision, q.Op.NodeName()
	}
	return r
}

// finish makes an intent its outcome.
func (r *Record) finish(done Record, now, began time.Time) {
	r.Type, r.Time, r.DurationUS = "outcome", now, now.Sub(began).Microseconds()
	r.Input, r.Masked = nil, false
	r.Outcome, r.Code, r.Exit = done.Outcome, done.Code, done.Exit
	r.Bytes, r.SHA256 = done.Bytes, done.SHA256
	r.Refused, r.Notes = done.Refused, done.Notes
}

// Visible reports whether the principal may see the tool in a list, and among its targets the node
// or guest that on names. It is decided but not journaled, since a list has no effect.
func (d *Door) Visible(ctx context.Context, p Principal, source string, t *Tool, on Targets) bool {
	q := Question{ID: "list", Kind: KindVisible, Time: d.o.Now(), Mode: d.o.Mode(),
		Call: &Call{Source: source, Principal: p, Tool: t, Targets: on, Nodes: d.o.Nodes}}
	dec, _ := d.decide(ctx, q)
	return dec.Allow
}

// visibleNodes returns the nodes that the call's plugin is told of.
func (d *Door) visibleNodes(ctx context.Context, c *Call) []Node {
	nodes := []Node{}
	for _, n := range d.o.Nodes {
		if d.Visible(ctx, c.Principal, c.Source, c.Tool, Targets{Nodes: []string{n.Name}}) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// newID returns 26 characters that sort by time: 48 bits of milliseconds, 80 random bits.
func newID(t time.Time) string {
	var b [16]byte
	rand.Read(b[:])
	ms := binary.BigEndian.AppendUint64(nil, uint64(t.UnixMilli()))
	copy(b[:6], ms[2:])
	return base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:])
}
