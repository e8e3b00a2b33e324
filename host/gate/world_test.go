package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// world is every part of a door, each of which a test can break.
type world struct {
	mu       sync.Mutex
	decide   func(terms.Question) (terms.Decision, error)
	events   []string // in the order in which they happened
	intents  []terms.Record
	durable  []bool
	outcomes []terms.Record
	broken   error // of Intent
	lost     error // of Outcome
	taken    int
	guest    func(context.Context, *Running) (terms.Output, error)
	execErr  error
	next     func(abi.Op) abi.Op
	confirm  func(*terms.Call) (terms.Confirmation, error)
	asked    terms.Decision
	mode     terms.Mode
	hidden   string // node
	read     func() // while arguments are read
	during   func(terms.Question)
}

func (w *world) add(f string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf(f, args...))
}

func (w *world) Decide(_ context.Context, q terms.Question) (terms.Decision, error) {
	if q.Kind == terms.KindVisible {
		return terms.Decision{
			Allow: w.hidden == "" || !slices.Contains(q.Call.Targets.Nodes, w.hidden),
			Tier:  terms.Green,
		}, nil
	}
	name := "call"
	if q.Op != nil {
		name = q.Op.Import() + "/" + q.Phase.String()
	}
	w.add("decide %s", name)
	return w.decide(q)
}
func (w *world) Intent(_ context.Context, r terms.Record, durable bool) error {
	w.add("intent %s%s %s", r.Kind, r.Op, r.Type)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.intents, w.durable = append(w.intents, r), append(w.durable, durable)
	return w.broken
}
func (w *world) Outcome(_ context.Context, r terms.Record) error {
	w.add("outcome %s%s %s", r.Kind, r.Op, r.Outcome)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcomes = append(w.outcomes, r)
	return w.lost
}
func (w *world) Take(context.Context, *terms.Call) (terms.Counts, func(), error) {
	w.taken++
	return terms.Counts{Calls60s: int64(w.taken)}, func() { w.taken-- }, nil
}
func (w *world) Ready(context.Context, *terms.Call, func(string)) error { return nil }
func (w *world) Run(ctx context.Context, r *Running) (terms.Output, error) {
	w.add("run")
	if w.guest == nil {
		return terms.Output{JSON: json.RawMessage(`{}`)}, nil
	}
	return w.guest(ctx, r)
}
func (w *world) Lookup(context.Context, terms.Question) (terms.Facts, error) {
	w.add("lookup")
	return terms.Facts{File: &terms.FileFacts{RealPath: "/etc/hosts"}}, nil
}

func (w *world) Execute(
	_ context.Context,
	q terms.Question,
	_ terms.Decision,
) (terms.Result, error) {
	w.add("execute %s", q.Op.Import())
	if w.during != nil {
		w.during(q)
	}
	if w.next != nil {
		return terms.Result{Bytes: 3, Next: w.next(q.Op)}, w.execErr
	}
	return terms.Result{Bytes: 3}, w.execErr
}
func (w *world) End(context.Context, *terms.Call) { w.add("end") }

func (w *world) Confirm(
	_ context.Context,
	c *terms.Call,
	d terms.Decision,
	tell func(string),
) (terms.Confirmation, error) {
	w.add("confirm")
	w.asked = d
	tell("asking")
	return w.confirm(c)
}

type words struct{}

func (words) Script(s string) terms.Command {
	return terms.Command{
		Form: "script",
		Lowered: terms.Lowered{
			Parsed: true,
			Calls:  []terms.Simple{{Argv: strings.Fields(s), Static: true}},
		},
	}
}

func (words) Argv(
	a []string,
) terms.Command {
	return terms.Command{Form: "argv", Rendered: strings.Join(a, " ")}
}

func allow(t terms.Tier) func(terms.Question) (terms.Decision, error) {
	return func(terms.Question) (terms.Decision, error) {
		return terms.Decision{Allow: true, Tier: t, Revision: "r1"}, nil
	}
}

func (w *world) door() *Door {
	execs := map[string]terms.Executor{}
	for _, n := range abi.Operations() {
		execs[n] = w
	}
	o := Options{
		Nodes: []terms.Node{
			{Name: "pve1", Cluster: "lab", Default: true},
			{Name: "pve2", Cluster: "lab"},
		},
		Decider:   w,
		Journal:   w,
		Ledger:    w,
		Lowerer:   words{},
		Throttle:  &fair.Refusals{},
		Executors: execs,
		Mode:      func(context.Context) terms.Mode { return w.mode },
	}
	if w.confirm != nil {
		o.Confirmer = w
	}
	return New(o, w)
}

func tool() *terms.Tool {
	return &terms.Tool{
		Kind:     "tool",
		Name:     "t",
		Imports:  []string{"ssh_exec"},
		Confirm:  "confirmed",
		Budget:   time.Minute,
		Validate: func(map[string]any) error { return nil },
		Derive: func(_ terms.Principal, a map[string]any) (terms.Targets, []terms.CommandText,
			error) {
			if n, ok := a["node"].(string); ok {
				return terms.Targets{Nodes: []string{n}}, nil, nil
			}
			return terms.Targets{}, nil, nil
		},
	}
}

// tool is a tool whose arguments take w.read to be read.
func (w *world) tool() *terms.Tool {
	t := tool()
	t.Validate = func(map[string]any) error {
		if w.read != nil {
			w.read()
		}
		return nil
	}
	return t
}

func (w *world) call(args string) terms.Answer {
	return w.door().
		Call(context.Background(), terms.Request{Source: "cli", Principal: terms.Principal{ID: "p"},
			Tool: tool(), Arguments: []byte(args)})
}

// An answer of the engine that is not a complete yes refuses the call, and the refusal says why.
