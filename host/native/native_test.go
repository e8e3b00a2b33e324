package native

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// world is every part of a door.
type world struct {
	allow     bool
	questions []gate.Question
	intents   []gate.Record
	outcomes  []gate.Record
	done      []abi.Op
	sandboxed int
}

func (w *world) Decide(_ context.Context, q gate.Question) (gate.Decision, error) {
	w.questions = append(w.questions, q)
	return gate.Decision{Allow: w.allow, Tier: gate.Yellow,
		Failed: map[bool][]string{false: {"freeze"}}[w.allow]}, nil
}
func (w *world) Intent(_ context.Context, r gate.Record, _ bool) error {
	w.intents = append(w.intents, r)
	return nil
}
func (w *world) Outcome(_ context.Context, r gate.Record) error {
	w.outcomes = append(w.outcomes, r)
	return nil
}
func (w *world) Take(context.Context, *gate.Call) (gate.Counts, func(), error) {
	return gate.Counts{}, func() {}, nil
}
func (w *world) Ready(context.Context, *gate.Tool, func(string)) error { return nil }
func (w *world) Run(context.Context, *gate.Running) (gate.Output, error) {
	w.sandboxed++
	return gate.Output{}, nil
}
func (w *world) Lookup(context.Context, gate.Question) (gate.Facts, error) {
	return gate.Facts{}, nil
}
func (w *world) Execute(_ context.Context, q gate.Question, _ gate.Decision) (gate.Result, error) {
	w.done = append(w.done, q.Op)
	return gate.Result{Value: struct{}{}}, nil
}
func (w *world) End(context.Context, *gate.Call) {}

func (w *world) open(tools ...Tool) (*Runner, *gate.Door) {
	r := New(w, "1.2.3", tools...)
	return r, gate.New(gate.Options{Decider: w, Journal: w, Ledger: w, Lowerer: shell.Lowerer{},
		Throttle: &fair.Refusals{}, Nodes: []gate.Node{{Name: "pve1", Default: true},
			{Name: "pve2"}},
		Executors: map[string]gate.Executor{"discard": w},
		Mode:      func(context.Context) gate.Mode { return gate.Mode{} }}, r)
}

var broom = Tool{Name: "broom", Imports: []string{"discard"}, Budget: time.Minute,
	Targets: func(args map[string]any) (gate.Targets, error) {
		node, _ := args["node"].(string)
		return gate.Targets{Nodes: []string{node}}, nil
	},
	Do: func(ctx context.Context, r *gate.Running) (any, error) {
		path, _ := r.Call.Args.Value["path"].(string)
		_, err := r.Operate(ctx, abi.Discard{OnNode: abi.OnNode{Node: "pve2"}, Path: path})
		return "swept", err
	}}

func TestACallOfTheHostIsDecidedAndJournaledLikeAnyOther(t *testing.T) {
	w := &world{allow: true}
	r, door := w.open(broom)
	a := r.Call(t.Context(), door, "broom", map[string]any{"node": "pve2", "path": "/tmp/x"})
	if a.Err != nil || a.Outcome != gate.Succeeded || string(a.Output.JSON) != `"swept"` ||
		len(w.done) != 1 || w.sandboxed != 0 {
		t.Fatalf("%+v, done %v", a, w.done)
	}
	for _, q := range w.questions {
		c := q.Call
		if c.Principal.ID != Host || c.Principal.Auth != Host || c.Source != Host ||
			c.Tool.Kind != Host ||
			q.Kind != gate.KindVisible && c.Targets.Nodes[0] != "pve2" {
			t.Errorf("decided as %+v", c)
		}
	}
	if len(w.intents) != 2 || len(w.outcomes) != 2 || w.intents[1].Op != "discard" ||
		w.intents[1].Node != "pve2" {
		t.Errorf("journaled %+v %+v", w.intents, w.outcomes)
	}
}

func TestARefusedCallOfTheHostDoesNothing(t *testing.T) {
	w := &world{}
	r, door := w.open(broom)
	a := r.Call(t.Context(), door, "broom", map[string]any{"node": "pve2", "path": "/tmp/x"})
	if !errors.Is(a.Err, gate.ErrRefused) || len(w.done) != 0 || len(w.intents) != 1 ||
		w.intents[0].Type != "refused" {
		t.Errorf("%+v, done %v, journaled %+v", a, w.done, w.intents)
	}
	if a := r.Call(t.Context(), door, "shovel", nil); a.Err == nil || a.Outcome != gate.Refusal {
		t.Errorf("a tool that is not there: %+v", a)
	}
}

func TestOnlyTheHostsOwnToolsRunHere(t *testing.T) {
	w := &world{allow: true}
	_, door := w.open(broom)
	call := func(kind string) gate.Answer {
		return door.Call(t.Context(), gate.Request{Source: "http",
			Principal: gate.Principal{ID: "a", Auth: "token"},
			Tool: &gate.Tool{Kind: kind, Name: "broom", Budget: time.Minute,
				Validate: func(map[string]any) error { return nil },
				Derive: func(gate.Principal, map[string]any) (gate.Targets, []gate.CommandText,
					error) {
					return gate.Targets{}, nil, nil
				}}})
	}
	if a := call("tool"); a.Err != nil || w.sandboxed != 1 {
		t.Errorf("a plugin's tool of that name: %+v, %d", a, w.sandboxed)
	}
	if a := call(Host); !errors.Is(a.Err, gate.ErrPlugin) || w.sandboxed != 1 || len(w.done) != 0 {
		t.Errorf("a tool that calls itself the host's: %+v", a)
	}
}
