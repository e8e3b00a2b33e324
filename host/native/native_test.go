package native

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// world is every part of a door.
type world struct {
	allow     bool
	questions []terms.Question
	intents   []terms.Record
	outcomes  []terms.Record
	done      []abi.Op
	sandboxed int
}

func (w *world) Decide(_ context.Context, q terms.Question) (terms.Decision, error) {
	w.questions = append(w.questions, q)
	return terms.Decision{Allow: w.allow, Tier: terms.Yellow,
		Failed: map[bool][]string{false: {"freeze"}}[w.allow]}, nil
}
func (w *world) Intent(_ context.Context, r terms.Record, _ bool) error {
	w.intents = append(w.intents, r)
	return nil
}
func (w *world) Outcome(_ context.Context, r terms.Record) error {
	w.outcomes = append(w.outcomes, r)
	return nil
}
func (w *world) Take(context.Context, *terms.Call) (terms.Counts, func(), error) {
	return terms.Counts{}, func() {}, nil
}
func (w *world) Ready(context.Context, *terms.Call, func(string)) error { return nil }
func (w *world) Run(context.Context, *gate.Running) (terms.Output, error) {
	w.sandboxed++
	return terms.Output{}, nil
}
func (w *world) Lookup(context.Context, terms.Question) (terms.Facts, error) {
	return terms.Facts{}, nil
}

func (w *world) Execute(
	_ context.Context,
	q terms.Question,
	_ terms.Decision,
) (terms.Result, error) {
	w.done = append(w.done, q.Op)
	return terms.Result{Value: struct{}{}}, nil
}
func (w *world) End(context.Context, *terms.Call) {}

func (w *world) open(tools ...Tool) (*Runner, *gate.Door) {
	r := New(w, "1.2.3", tools...)
	return r, gate.New(gate.Options{Decider: w, Journal: w, Ledger: w, Lowerer: shell.Lowerer{},
		Throttle: &fair.Refusals{}, Nodes: []terms.Node{{Name: "pve1", Default: true},
			{Name: "pve2"}},
		Executors: map[string]terms.Executor{"discard": w},
		Mode:      func(context.Context) terms.Mode { return terms.Mode{} }}, r)
}

var broom = Tool{Name: "broom", Imports: []string{"discard"}, Budget: time.Minute,
	Targets: func(args map[string]any) (terms.Targets, error) {
		node, _ := args["node"].(string)
		return terms.Targets{Nodes: []string{node}}, nil
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
	if a.Err != nil || a.Outcome != terms.Succeeded || string(a.Output.JSON) != `"swept"` ||
		len(w.done) != 1 || w.sandboxed != 0 {
		t.Fatalf("%+v, done %v", a, w.done)
	}
	for _, q := range w.questions {
		c := q.Call
		if c.Principal.ID != Host || c.Principal.Auth != Host || c.Source != Host ||
			c.Tool.Kind != Host ||
			q.Kind != terms.KindVisible && c.Targets.Nodes[0] != "pve2" {
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
	if !errors.Is(a.Err, terms.ErrRefused) || len(w.done) != 0 || len(w.intents) != 1 ||
		w.intents[0].Type != "refused" {
		t.Errorf("%+v, done %v, journaled %+v", a, w.done, w.intents)
	}
	if a := r.Call(t.Context(), door, "shovel", nil); a.Err == nil || a.Outcome != terms.Refusal {
		t.Errorf("a tool that is not there: %+v", a)
	}
}

func TestOnlyTheHostsOwnToolsRunHere(t *testing.T) {
	w := &world{allow: true}
	_, door := w.open(broom)
	call := func(kind string) terms.Answer {
		return door.Call(t.Context(), terms.Request{Source: "http",
			Principal: terms.Principal{ID: "a", Auth: "token"},
			Tool: &terms.Tool{Kind: kind, Name: "broom", Budget: time.Minute,
				Validate: func(map[string]any) error { return nil },
				Derive: func(terms.Principal, map[string]any) (terms.Targets, []terms.CommandText,
					error) {
					return terms.Targets{}, nil, nil
				}}})
	}
	if a := call("tool"); a.Err != nil || w.sandboxed != 1 {
		t.Errorf("a plugin's tool of that name: %+v, %d", a, w.sandboxed)
	}
	if a := call(Host); !errors.Is(a.Err, terms.ErrPlugin) || w.sandboxed != 1 || len(w.done) != 0 {
		t.Errorf("a tool that calls itself the host's: %+v", a)
	}
}
