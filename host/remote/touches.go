package remote

import (
	"context"
	"errors"
	"fmt"

	"github.com/caponier-mcp/caponier/host/remote/internal/command"
	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/survey"
	"github.com/caponier-mcp/caponier/host/terms"
)

// maxSurvey is the size of one answer: the list of guests of a large cluster.
const maxSurvey = 4 << 20

// touched asks a node what these are.
func touched(ctx context.Context, run ask, node string, lacks []string) ([]terms.Touched, error) {
	out := func(ctx context.Context, argv ...string) ([]byte, error) {
		e, err := run(ctx, argv)
		switch {
		case err != nil:
			return nil, err
		case e.Exit != 0 || e.Truncated:
			return nil, fmt.Errorf("it ended with exit code %d: %q", e.Exit, command.Clip(e.Stderr))
		}
		return e.Stdout, nil
	}
	all, err := survey.Of(ctx, out, node, lacks)
	op := (*terms.OpError)(nil)
	switch {
	case errors.As(err, &op):
		return nil, effect.Failed(op.Code, "asking %s what is touched: %s", node, op.Message)
	case err != nil:
		return nil, effect.Failed("failed", "asking %s what is touched: %v", node, err)
	}
	return all, nil
}
