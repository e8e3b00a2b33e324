package sweep

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/caponier-mcp/caponier/host/gate"
)

func TestANodeThatIsAwayIsAskedOnceAndSweptWhenItIsBack(t *testing.T) {
	left := []gate.StageDir{{Node: "away", Dir: "/a"}, {Node: "away", Dir: "/b"},
		{Node: "here", Dir: "/c"}, {Node: "", Dir: "agent/1"}, {Node: "", Dir: "agent/2"}}
	var asked []string
	away, broken := true, errors.New("no answer")
	s := Sweeper{
		Left: func(context.Context) ([]gate.StageDir, error) { return slices.Clone(left), nil },
		Clean: func(_ context.Context, at gate.StageDir) error {
			asked = append(asked, at.Dir)
			if away && at.Node == "away" || at.Dir == "agent/1" {
				return broken
			}
			left = slices.DeleteFunc(left, func(l gate.StageDir) bool { return l == at })
			return nil
		},
	}
	if n := s.sweep(t.Context()); n != 3 || !slices.Equal(asked, []string{"/a", "/c", "agent/1", "agent/2"}) {
		t.Errorf("%d failed, asked for %v", n, asked)
	}
	away = false
	if n := s.sweep(t.Context()); n != 1 || len(left) != 1 {
		t.Errorf("when it is back: %d failed, left %v", n, left)
	}
	s.Left = func(context.Context) ([]gate.StageDir, error) { return nil, broken }
	if n := s.sweep(t.Context()); n == 0 {
		t.Error("a store that is away counts as swept")
	}
}

func TestRunSweepsAtOnceAndEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	swept := 0
	Sweeper{Left: func(context.Context) ([]gate.StageDir, error) {
		swept++
		stop()
		return nil, nil
	}}.Run(ctx)
	if swept != 1 {
		t.Errorf("swept %d times", swept)
	}
}
