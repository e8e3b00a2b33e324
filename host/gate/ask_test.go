package gate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// A guest that has been told to return may ask more, and nothing else; only a question can wait,
// and the host believes itself about it.
func TestAQuestionThatWaitsEndsTheRound(t *testing.T) {
	pending := func(r *Running, op abi.Op) error {
		_, err := r.Operate(context.Background(), op)
		return err
	}
	for name, tt := range map[string]struct {
		guest   func(*Running) error // its error is what the last operation got
		code    int                  // that the guest returns
		outcome terms.Outcome
		last    func(error) bool
	}{
		"it waits": {func(r *Running) error { return pending(r, abi.Ask{Key: "k"}) }, 1,
			terms.Waits,
			func(err error) bool { return errors.Is(err, terms.ErrPending) }},
		"another question is fine": {func(r *Running) error {
			_ = pending(r, abi.Ask{Key: "k"})
			return pending(r, abi.Ask{Key: "l"})
		}, 1, terms.Waits, func(err error) bool { return errors.Is(err, terms.ErrPending) }},
		"anything else is refused": {func(r *Running) error {
			_ = pending(r, abi.Ask{Key: "k"})
			return pending(r, abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"}})
		}, 1, terms.Waits, func(err error) bool {
			bad := (*abi.RequestError)(nil)
			return errors.As(err, &bad) && bad.Field == "call"
		}},
		"a guest that goes on has not waited": {func(r *Running) error {
			return pending(r, abi.Ask{Key: "k"})
		}, 0, terms.Succeeded, func(err error) bool { return errors.Is(err, terms.ErrPending) }},
		"an operation cannot wait for anybody": {func(r *Running) error {
			return pending(r, abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"}})
		}, 1, terms.Failed, func(err error) bool {
			op := (*terms.OpError)(nil)
			return errors.As(err, &op) &&
				op.Code == "failed"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{decide: allow(terms.Green), execErr: terms.ErrPending}
			var last error
			w.guest = func(_ context.Context, r *Running) (terms.Output, error) {
				last = tt.guest(r)
				return terms.Output{Code: tt.code, JSON: json.RawMessage(`{}`)}, nil
			}
			a := w.call(`{}`)
			if a.Outcome != tt.outcome || !tt.last(last) {
				t.Errorf(
					"outcome %s, want %s; the last operation got %v",
					a.Outcome,
					tt.outcome,
					last,
				)
			}
			if end := w.outcomes[len(w.outcomes)-1]; end.Outcome != tt.outcome {
				t.Errorf("journaled as %s", end.Outcome)
			}
			if name == "anything else is refused" && slices.Contains(w.events, "execute ssh_exec") {
				t.Error("it was executed all the same")
			}
		})
	}
}

func TestRoundsAreCountedFromOne(t *testing.T) {
	for given, want := range map[int]int{0: 1, 1: 1, 4: 4} {
		w := &world{decide: allow(terms.Green)}
		got := 0
		w.guest = func(_ context.Context, r *Running) (terms.Output, error) {
			got = r.Round
			return terms.Output{JSON: json.RawMessage(`{}`)}, nil
		}
		w.door().
			Call(context.Background(), terms.Request{Source: "cli",
				Principal: terms.Principal{ID: "p"},
				Tool:      tool(), Round: given})
		if got != want {
			t.Errorf("round %d arrived as %d, want %d", given, got, want)
		}
	}
}

func TestAPluginIsToldOnlyOfNodesThatItsCallerMaySee(t *testing.T) {
	w := &world{decide: allow(terms.Green), hidden: "pve2"}
	var told []string
	w.guest = func(_ context.Context, r *Running) (terms.Output, error) {
		told = nil
		for _, n := range r.Nodes {
			told = append(told, n.Name)
		}
		return terms.Output{JSON: json.RawMessage(`{}`)}, nil
	}
	d := w.door()
	call := func(id, revision string) string {
		w.decide = func(terms.Question) (terms.Decision, error) {
			return terms.Decision{Allow: true, Tier: terms.Green, Revision: revision}, nil
		}
		d.Call(
			context.Background(),
			terms.Request{Source: "cli", Principal: terms.Principal{ID: id}, Tool: tool()},
		)
		return strings.Join(told, " ")
	}
	if got := call("a", "r1"); got != "pve1" {
		t.Errorf("told of %s", got)
	}
	w.hidden = "pve1"
	if got := call("b", "r1"); got != "pve2" {
		t.Errorf("another principal is told of %s", got)
	}
	if got := call("a", "r2"); got != "pve2" {
		t.Errorf("after a change of policy told of %s", got)
	}
}
