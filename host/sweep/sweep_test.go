package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
)

func TestAnUnreachableNodeIsSweptWhenItReturns(t *testing.T) {
	left := []terms.StageDir{{Node: "away", Dir: "/a"}, {Node: "away", Dir: "/b"},
		{Node: "here", Dir: "/c"}, {Node: "", Dir: "agent/1"}, {Node: "", Dir: "agent/2"}}
	var asked []string
	away := true
	s := Sweeper{
		Left: func(context.Context) ([]terms.StageDir, error) { return slices.Clone(left), nil },
		Call: func(_ context.Context, tool string, args any) terms.Answer {
			given := args.(map[string]any)
			node, names := given["node"].(string), given["names"].([]string)
			asked = append(asked, fmt.Sprint(tool, " ", node, names))
			if away && node == "away" {
				return terms.Answer{Err: errors.New("no answer")}
			}
			left = slices.DeleteFunc(left, func(l terms.StageDir) bool {
				return l.Node == node && slices.Contains(names, l.Dir)
			})
			return terms.Answer{}
		},
	}
	s.sweep(t.Context())
	if want := []string{"remove_leftovers away[/a /b]", "remove_leftovers here[/c]",
		"remove_leftovers [agent/1 agent/2]"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q", asked)
	}
	away = false
	if s.sweep(t.Context()); len(left) != 0 {
		t.Errorf("when it is back: left %v", left)
	}
}

func TestARefusedSweepIsLoggedOnceUntilItIsAllowed(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	var err error = &terms.Refused{Failed: []string{"freeze"}}
	s := Sweeper{
		Left: func(context.Context) ([]terms.StageDir, error) {
			return []terms.StageDir{{Node: "n", Dir: "/a"}}, nil
		},
		Call: func(context.Context, string, any) terms.Answer { return terms.Answer{Err: err} },
	}
	said := func() int { return strings.Count(log.String(), "freeze") }
	s.sweep(t.Context())
	s.sweep(t.Context())
	if said() != 1 {
		t.Errorf("said %d times:\n%s", said(), log.String())
	}
	err = nil
	s.sweep(t.Context())
	err = &terms.Refused{Failed: []string{"freeze"}}
	if s.sweep(t.Context()); said() != 2 {
		t.Errorf("said %d times after it was allowed:\n%s", said(), log.String())
	}
}

func TestRunSweepsAtOnceAndEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	swept := 0
	s := Sweeper{Left: func(context.Context) ([]terms.StageDir, error) {
		swept++
		stop()
		return nil, nil
	}}
	if s.Run(ctx); swept != 1 {
		t.Errorf("swept %d times", swept)
	}
}
