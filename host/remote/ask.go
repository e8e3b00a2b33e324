package remote

import (
	"context"

	"github.com/caponier-mcp/caponier/host/remote/internal/command"
	"github.com/caponier-mcp/caponier/host/shell"
)

// ask runs a command on a node, of which the host needs the answer.
type ask func(ctx context.Context, argv []string) (command.Ended, error)

// ask asks for a principal. An answer has at most max bytes.
func (n *node) ask(who string, max int64) ask {
	return func(ctx context.Context, argv []string) (command.Ended, error) {
		return command.Run(ctx, n.Node.Node, command.Command{Who: who, Text: shell.Quote(argv),
			Max: max})
	}
}
