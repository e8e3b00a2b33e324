package gate

import (
	"context"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// taken remembers what reached the executor.
type taken struct {
	*world
	executed terms.Question
}

func (k *taken) Execute(
	ctx context.Context,
	q terms.Question,
	d terms.Decision,
) (terms.Result, error) {
	k.executed = q
	return k.world.Execute(ctx, q, d)
}

// A red call that a person may still confirm is refused for now, and the journal says so. Where
// nobody can be asked it is refused.
func TestARedFirstPassIsJournaledAsWaiting(t *testing.T) {
	red := func(terms.Question) (terms.Decision, error) {
		return terms.Decision{
			Tier:          terms.Red,
			Failed:        []string{"confirmation"},
			NeedsApproval: true,
		}, nil
	}
	said := ""
	for _, tt := range []struct {
		confirm func(*terms.Call) (terms.Confirmation, error)
		want    terms.Outcome
	}{{func(*terms.Call) (terms.Confirmation, error) {
		return terms.Confirmation{}, &terms.Waiting{ApprovalID: "R1"}
	},
		terms.Waits}, {nil, ""}} {
		w := &world{decide: red, confirm: tt.confirm}
		a := w.door().
			Call(context.Background(), terms.Request{Principal: terms.Principal{ID: "p"},
				Tool:     tool(),
				Progress: func(_, _ float64, message string) { said += message }})
		if a.Err == nil || w.intents[0].Type != "refused" || w.intents[0].Outcome != tt.want {
			t.Errorf(
				"%+v journaled as %s %q, want %q",
				a,
				w.intents[0].Type,
				w.intents[0].Outcome,
				tt.want,
			)
		}
	}
	if said != "asking" {
		t.Errorf("the client heard %q", said)
	}
}

// What acts gets the very question that was decided, under the id that the journal has.
func TestWhatActsGetsTheQuestionThatWasDecided(t *testing.T) {
	k := &taken{world: &world{decide: allow(terms.Yellow)}}
	k.guest = func(ctx context.Context, r *Running) (terms.Output, error) {
		_, err := r.Operate(ctx, abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"},
			Argv: []string{"true"}})
		return terms.Output{}, err
	}
	d := k.door()
	d.o.Executors["ssh_exec"] = k
	d.o.Mode = func(context.Context) terms.Mode { return terms.Mode{ReadOnly: true} }
	a := d.Call(context.Background(), terms.Request{Principal: terms.Principal{ID: "p"},
		Tool: tool()})
	if a.Err != nil || len(k.intents) != 2 || k.executed.ID != k.intents[1].ID ||
		!k.executed.Mode.ReadOnly ||
		k.executed.Time.IsZero() {
		t.Errorf("%v: executed %+v, journaled %v", a.Err, k.executed, k.intents)
	}
}

// heap cannot be compared, so it can be no key of a map.
type heap struct {
	*world
	_ []string
}

// value can be compared, unless what it holds cannot.
type value struct {
	*world
	holds any
}

// However an executor is made, each call that ends frees what it holds, and the host goes on.
func TestEveryExecutorIsEndedWhateverItsType(t *testing.T) {
	imports := len(abi.Operations())
	for name, tt := range map[string]struct {
		executor func(*world) terms.Executor
		ended    int
	}{
		"a pointer": {func(w *world) terms.Executor { return w }, 1},
		"a pointer to what has a slice": {func(w *world) terms.Executor { return &heap{world: w} },
			imports},
		"a struct": {func(w *world) terms.Executor { return value{w, 1} }, 1},
		"a struct with a slice": {func(w *world) terms.Executor { return heap{world: w} },
			imports},
		"a struct that holds a function": {func(w *world) terms.Executor {
			return value{w,
				func() {}}
		},
			imports},
		"a struct that holds such another": {func(w *world) terms.Executor {
			return value{w,
				heap{}}
		},
			imports},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{decide: allow(terms.Green)}
			d := w.door()
			for n := range d.o.Executors {
				d.o.Executors[n] = tt.executor(w)
			}
			d = New(d.o, w)
			a := d.Call(t.Context(), terms.Request{Principal: terms.Principal{ID: "p"},
				Tool: tool()})
			ended := 0
			for _, e := range w.events {
				if e == "end" {
					ended++
				}
			}
			if a.Err != nil || a.Outcome != terms.Succeeded || ended != tt.ended {
				t.Errorf("%s, %v, ended %d times, want %d", a.Outcome, a.Err, ended, tt.ended)
			}
		})
	}
}
