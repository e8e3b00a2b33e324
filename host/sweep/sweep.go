// Package sweep removes what processes that died left behind.
package sweep

import (
	"context"
	"log/slog"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

// Sweeper removes temporary directories of nodes, and temporary files of the workspace, which have
// Node "". No field may be nil.
type Sweeper struct {
	// Left lists what is recorded and not in use.
	Left func(context.Context) ([]gate.StageDir, error)
	// Clean removes one of them and its record.
	Clean func(context.Context, gate.StageDir) error
}

// Run sweeps at once, and then every hour, or after five minutes while something could not be
// removed, such as what is on a node that is away. It returns when ctx ends.
func (s Sweeper) Run(ctx context.Context) {
	for {
		wait := time.Hour
		if s.sweep(ctx) > 0 {
			wait = 5 * time.Minute
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// sweep cleans everything in Left and returns how much of it could not be removed. A node that
// fails once is not asked again.
func (s Sweeper) sweep(ctx context.Context) (failed int) {
	left, err := s.Left(ctx)
	if err != nil {
		if ctx.Err() == nil {
			slog.Warn("looking for what dead processes left behind", "error", err)
		}
		return 1
	}
	away := map[string]bool{}
	for _, at := range left {
		if away[at.Node] || ctx.Err() != nil {
			failed++
			continue
		}
		one, cancel := context.WithTimeout(ctx, time.Minute)
		err := s.Clean(one, at)
		cancel()
		if err == nil {
			slog.Info("removed what a process left behind", "node", at.Node, "name", at.Dir)
			continue
		}
		failed++
		away[at.Node] = at.Node != ""
		slog.Warn("removing what a process left behind", "node", at.Node, "name", at.Dir,
			"error", err)
	}
	return failed
}
