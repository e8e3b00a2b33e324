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
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// world is every part of a door, each of which a test can break.
type world struct {
	mu       sync.Mutex
	decide   func(Question) (Decision, error)
	events   []string // in the order in which they happened
	intents  []Record
	durable  []bool
	outcomes []Record
	broken   error // of Intent
	lost     error // of Outcome
	taken    int
	guest    func(context.Context, *Running) (Output, error)
	execErr  error
	next     func(abi.Op) abi.Op
	confirm  func(*Call) (Confirmation, error)
	asked    Decision
	mode     Mode
	hidden   string // node
	read     func() // while arguments are read
	during   func(Question)
}

func (w *world) add(f string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf(f, args...))
}

func (w *world) Decide(_ context.Context, q Question) (Decision, error) {
	if q.Kind == KindVisible {
		return Decision{
			Allow: w.hidden == "" || !slices.Contains(q.Call.Targets.Nodes, w.hidden),
			Tier:  Green,
		}, nil
	}
	name := "call"
	if q.Op != nil {
		name = q.Op.Import() + "/" + q.Phase.String()
	}
	w.add("decide %s", name)
	return w.decide(q)
}
func (w *world) Intent(_ context.Context, r Record, durable bool) error {
	w.add("intent %s%s %s", r.Kind, r.Op, r.Type)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.intents, w.durable = append(w.intents, r), append(w.durable, durable)
	return w.broken
}
func (w *world) Outcome(_ context.Context, r Record) error {
	w.add("outcome %s%s %s", r.Kind, r.Op, r.Outcome)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcomes = append(w.outcomes, r)
	return w.lost
}
func (w *world) Take(context.Context, *Call) (Counts, func(), error) {
	w.taken++
	return Counts{Calls60s: int64(w.taken)}, func() { w.taken-- }, nil
}
func (w *world) Ready(context.Context, *Tool, func(string)) error { return nil }
func (w *world) Run(ctx context.Context, r *Running) (Output, error) {
	w.add("run")
	if w.guest == nil {
		return Output{JSON: json.RawMessage(`{}`)}, nil
	}
	return w.guest(ctx, r)
}
func (w *world) Lookup(context.Context, Question) (Facts, error) {
	w.add("lookup")
	return Facts{File: &FileFacts{RealPath: "/etc/hosts"}}, nil
}
func (w *world) Execute(_ context.Context, q Question, _ Decision) (Result, error) {
	w.add("execute %s", q.Op.Import())
	if w.during != nil {
		w.during(q)
	}
	if w.next != nil {
		return Result{Bytes: 3, Next: w.next(q.Op)}, w.execErr
	}
	return Result{Bytes: 3}, w.execErr
}
func (w *world) End(context.Context, *Call) { w.add("end") }

func (w *world) Confirm(
	_ context.Context,
	c *Call,
	d Decision,
	tell func(string),
) (Confirmation, error) {
	w.add("confirm")
	w.asked = d
	tell("asking")
	return w.confirm(c)
}

type words struct{}

func (words) Script(s string) Command {
	return Command{
		Form:    "script",
		Lowered: Lowered{Parsed: true, Calls: []Simple{{Argv: strings.Fields(s), Static: true}}},
	}
}

func (words) Argv(
	a []string,
) Command {
	return Command{Form: "argv", Rendered: strings.Join(a, " ")}
}

func allow(t Tier) func(Question) (Decision, error) {
	return func(Question) (Decision, error) {
		return Decision{Allow: true, Tier: t, Revision: "r1"}, nil
	}
}

func (w *world) door() *Door {
	execs := map[string]Executor{}
	for _, n := range abi.Operations() {
		execs[n] = w
	}
	o := Options{
		Nodes: []Node{
			{Name: "pve1", Cluster: "lab", Default: true},
			{Name: "pve2", Cluster: "lab"},
		},
		Decider:   w,
		Journal:   w,
		Ledger:    w,
		Lowerer:   words{},
		Throttle:  &fair.Refusals{},
		Executors: execs,
		Mode:      func(context.Context) Mode { return w.mode },
	}
	if w.confirm != nil {
		o.Confirmer = w
	}
	return New(o, w)
}

func tool() *Tool {
	return &Tool{
		Kind:     "tool",
		Name:     "t",
		Imports:  []string{"ssh_exec"},
		Confirm:  "confirmed",
		Budget:   time.Minute,
		Validate: func(map[string]any) error { return nil },
		Derive: func(_ Principal, a map[string]any) (Targets, []CommandText, error) {
			if n, ok := a["node"].(string); ok {
				return Targets{Nodes: []string{n}}, nil, nil
			}
			return Targets{}, nil, nil
		},
	}
}

// tool is a tool whose arguments take w.read to be read.
func (w *world) tool() *Tool {
	t := tool()
	t.Validate = func(map[string]any) error {
		if w.read != nil {
			w.read()
		}
		return nil
	}
	return t
}

func (w *world) call(args string) Answer {
	return w.door().
		Call(context.Background(), Request{Source: "cli", Principal: Principal{ID: "p"},
			Tool: tool(), Arguments: []byte(args)})
}

// An answer of the engine that is not a complete yes refuses the call, and the refusal says why.
