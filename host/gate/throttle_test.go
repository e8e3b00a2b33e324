package gate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// One principal cannot fill the journal with refusals, and nobody else has to wait for it.
func TestRefusalsOfOnePrincipalAreBounded(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	w := &world{decide: func(q terms.Question) (terms.Decision, error) {
		if q.Call.Principal.ID == "good" {
			return allow(terms.Green)(q)
		}
		return terms.Decision{Tier: terms.Green, Failed: []string{"grant"}}, nil
	}}
	d := w.door()
	d.o.Now = func() time.Time { return now }
	call := func(who string) terms.Answer {
		return d.Call(
			context.Background(),
			terms.Request{
				Source:    "cli",
				Principal: terms.Principal{ID: who},
				Tool:      tool(),
				Arguments: []byte("{}"),
			},
		)
	}
	for range fair.MaxRefusals {
		call("bad")
	}
	before := len(w.intents)
	var refused *terms.Refused
	for i := range 500 {
		now = now.Add(2 * time.Millisecond)
		if a := call("bad"); !errors.As(a.Err, &refused) || refused.Failed[0] != "refusals" ||
			!strings.Contains(refused.Denied[0].Msg, "it may call again in ") ||
			a.Outcome != terms.Refusal ||
			a.CallID == "" {
			t.Fatalf("call %d: %+v", i, a)
		}
	}
	if n := len(w.intents) - before; n > 2 {
		t.Errorf("%d records of 500 refusals in a second", n)
	}
	if a := call("good"); a.Outcome != terms.Succeeded {
		t.Errorf("another principal: %+v", a)
	}
	now = now.Add(time.Minute)
	if a := call("bad"); !errors.As(a.Err, &refused) || refused.Failed[0] != "grant" {
		t.Errorf("a minute later: %+v", a)
	}
}

func TestWhatSucceedsIsNotCountedAsARefusal(t *testing.T) {
	w := &world{decide: allow(terms.Green)}
	d := w.door()
	for range fair.MaxRefusals + 10 {
		if a := d.Call(context.Background(), terms.Request{Source: "cli",
			Principal: terms.Principal{ID: "p"},
			Tool:      tool(), Arguments: []byte("{}")}); a.Outcome != terms.Succeeded {
			t.Fatalf("%+v", a)
		}
	}
}

// A call that is refused is charged for as long as the host computed for it, so that dear refusals
// are fewer than cheap ones, whatever made them dear: reading the arguments or deciding.
func TestARefusalIsChargedWhatItCost(t *testing.T) {
	for name, dear := range map[string]func(w *world, spend func()){
		"deciding": func(w *world, spend func()) {
			w.decide = func(terms.Question) (terms.Decision, error) {
				spend()
				return terms.Decision{Tier: terms.Green, Failed: []string{"grant"}}, nil
			}
		},
		"reading": func(w *world, spend func()) {
			w.decide = func(terms.Question) (terms.Decision, error) {
				return terms.Decision{Failed: []string{"x"}}, nil
			}
			w.read = spend
		},
	} {
		t.Run(name, func(t *testing.T) {
			now, w := time.Unix(1_700_000_000, 0), &world{}
			dear(w, func() { now = now.Add(100 * time.Millisecond) })
			d := w.door()
			d.o.Now = func() time.Time { return now }
			calls := 0
			for ; calls < fair.MaxRefusals; calls++ {
				a := d.Call(
					t.Context(),
					terms.Request{Source: "cli", Principal: terms.Principal{ID: "bad"},
						Tool: w.tool(), Arguments: []byte("{}")},
				)
				var refused *terms.Refused
				if errors.As(a.Err, &refused) && refused.Failed[0] == "refusals" {
					break
				}
			}
			if calls < 50 || calls > 60 {
				t.Errorf("%d refusals of 100 ms in a minute, want 54", calls)
			}
		})
	}
}

// turns is a share of processors that says who holds one.
type turns struct{ held, taken int }

func (s *turns) Acquire(context.Context, string) error { s.held++; s.taken++; return nil }
func (s *turns) Release(string)                        { s.held-- }

// What computes is done in a turn, and nothing waits in one.
func TestComputingTakesATurn(t *testing.T) {
	s, w := &turns{}, planned()
	in := func(what string, want int) {
		if s.held != want {
			t.Errorf("%s with %d turns, want %d", what, s.held, want)
		}
	}
	decide, confirm := w.decide, w.confirm
	w.decide = func(q terms.Question) (terms.Decision, error) { in("decided", 1); return decide(q) }
	w.confirm = func(c *terms.Call) (terms.Confirmation, error) {
		in("a person is asked", 0)
		return confirm(c)
	}
	w.read = func() { in("read", 1) }
	w.guest = func(ctx context.Context, r *Running) (terms.Output, error) {
		in("a plugin runs", 0)
		return runs(func(bool) []string { return []string{"read 1", "stop 1"} })(ctx, r)
	}
	w.next = func(abi.Op) abi.Op { in("executed", 0); return nil }
	d := w.door()
	d.o.Planner, d.o.Turns = &paper{}, s
	tool := w.tool()
	tool.Plans = true
	a := d.Call(
		t.Context(),
		terms.Request{Source: "cli", Principal: terms.Principal{ID: "p"}, Tool: tool},
	)
	if a.Outcome != terms.Succeeded || s.held != 0 || s.taken < 8 {
		t.Errorf("%s after %d turns, %d not given back: %v", a.Outcome, s.taken, s.held, a.Err)
	}
}
