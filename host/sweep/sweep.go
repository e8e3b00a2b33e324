// Package sweep removes what processes that died left behind.
package sweep

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/native"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// name is the name of the host's tool, also in core policy.
const name = "remove_leftovers"

// most is how many names one call is decided with.
const most = 100

// Tool removes what its arguments list: "names" on "node", or in the workspace without a node.
var Tool = native.Tool{
	Name: name, Imports: []string{abi.Discard{}.Import()}, Budget: 5 * time.Minute,
	Runs: "removes directories and files that the host recorded and did not remove",
	Targets: func(args map[string]any) (on terms.Targets, err error) {
		if node, _ := args["node"].(string); node != "" {
			on.Nodes = []string{node}
		}
		return on, nil
	},
	Do: func(ctx context.Context, r *gate.Running) (any, error) {
		var errs []error
		node, _ := r.Call.Args.Value["node"].(string)
		names, _ := r.Call.Args.Value["names"].([]any)
		for _, n := range names {
			path, _ := n.(string)
			_, err := r.Operate(ctx, abi.Discard{OnNode: abi.OnNode{Node: node}, Path: path})
			if err != nil {
				errs = append(errs, err)
			}
			op := (*terms.OpError)(nil)
			if errors.As(err, &op) && slices.Contains(away, op.Code) {
				errs = append(errs, errAway)
				break
			}
		}
		return nil, errors.Join(errs...)
	},
}

// away are the codes of errors that are not of the one name: each further one would wait in vain.
// Any other must not keep the names behind it from being removed.
var away = []string{"connection", "credentials", "host_key", "lost", "timeout", "cancelled",
	"protocol", "not_permitted_on_node", "internal"}

var errAway = errors.New("nothing else on it can be removed now")

// Sweeper removes temporary directories of nodes, and temporary files of the workspace, which have
// Node "". No field may be nil.
type Sweeper struct {
	// Left lists recorded files that are not in use.
	Left func(context.Context) ([]terms.StageDir, error)
	// Call makes a call of a tool as the host.
	Call func(ctx context.Context, tool string, args any) terms.Answer

	refused bool // the last sweep was
}

// Run sweeps at once and then every five minutes; after a sweep that found something it looks again
// in five seconds, then in ten, and so on, since something may be left. It returns when ctx ends.
func (s *Sweeper) Run(ctx context.Context) {
	const soon, late = 5 * time.Second, 5 * time.Minute
	for wait := soon; ; {
		next := late
		if found := s.sweep(ctx); found {
			next, wait = wait, min(2*wait, late)
		} else {
			wait = soon
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
		}
	}
}

// sweep removes everything in Left, with calls for each node. It reports whether it found anything,
// or could not look.
func (s *Sweeper) sweep(ctx context.Context) bool {
	left, err := s.Left(ctx)
	if err != nil && ctx.Err() == nil {
		slog.Warn("looking for what dead processes left behind", "error", err)
	}
	var nodes []string
	names := map[string][]string{}
	for _, at := range left {
		if names[at.Node] == nil {
			nodes = append(nodes, at.Node)
		}
		names[at.Node] = append(names[at.Node], at.Dir)
	}
	var refusal error
	for _, node := range nodes {
		for some := range slices.Chunk(names[node], most) {
			if ctx.Err() != nil {
				return true
			}
			a := s.Call(ctx, name, map[string]any{"node": node, "names": some})
			if a.Err == nil {
				slog.Info("what a process left behind is gone", "node", node, "names", some)
				continue
			}
			if errors.Is(a.Err, terms.ErrRefused) {
				refusal = a.Err
				break
			}
			slog.Warn("removing what a process left behind", "node", node, "names", some,
				"error", a.Err)
			if errors.Is(a.Err, errAway) {
				break
			}
		}
	}
	if refusal != nil && !s.refused {
		slog.Warn("what processes left behind stays, since the host may not remove it",
			"error", refusal)
	}
	s.refused = refusal != nil
	return len(left) > 0 || err != nil
}
