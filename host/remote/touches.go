package remote

import (
	"context"
	"errors"
	"fmt"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/survey"
)

// maxSurvey is the size of one answer: the list of guests of a large cluster.
const maxSurvey = 4 << 20

// touched asks the node what these are, for a principal.
func (n *node) touched(ctx context.Context, who string, lacks []string) ([]gate.Touched, error) {
	ask := func(ctx context.Context, argv ...string) ([]byte, error) {
		e, err := n.exec(ctx, command{who: who, text: shell.Quote(argv), max: maxSurvey})
		switch {
		case err != nil:
			return nil, err
		case e.exit != 0 || e.truncated:
			return nil, fmt.Errorf("it ended with exit code %d: %q", e.exit, clip(e.stderr))
		}
		return e.stdout, nil
	}
	all, err := survey.Of(ctx, ask, n.opts.Name, lacks)
	op := (*gate.OpError)(nil)
	switch {
	case errors.As(err, &op):
		return nil, failed(op.Code, "asking %s what is touched: %s", n.opts.Name, op.Message)
	case err != nil:
		return nil, failed("failed", "asking %s what is touched: %v", n.opts.Name, err)
	}
	return all, nil
}
