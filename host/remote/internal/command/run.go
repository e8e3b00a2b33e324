// Package command runs commands in SSH sessions.
package command

import (
	"context"
	"errors"

	"github.com/caponier-mcp/caponier/host/remote/internal/conn"
	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
)

// maxCommand is what Linux takes as one argument, which the command is for the login shell.
const maxCommand = 128<<10 - 1

// Run runs a command. It returns at once when ctx ends; the worker then closes the session without
// reading on.
func Run(ctx context.Context, n *conn.Node, cmd Command) (Ended, error) {
	if len(cmd.Text) > maxCommand {
		return Ended{}, effect.Failed("too_large",
			"the command is %d bytes long, a node takes %d; "+
				"write it to a staged file and run that", len(cmd.Text), maxCommand)
	}
	p, done := &effect.Pledge{}, make(chan effect.Result[Ended], 1)
	n.Go(func() {
		run(ctx, n, cmd, p, func(e Ended, err error) {
			done <- effect.Result[Ended]{Value: e, Err: err}
		})
	})
	return effect.Await(ctx, p, done, "running a command on "+n.Name, "it was not sent",
		stillRunning)
}

// run does the work of Run and calls report once, before it cleans up.
func run(
	ctx context.Context, n *conn.Node, cmd Command, p *effect.Pledge, report func(Ended, error),
) {
	s, err := n.Session(ctx, cmd.Who, func(ctx context.Context, c *conn.Conn) error {
		return ready(ctx, c, cmd.Text)
	})
	if err != nil {
		report(Ended{}, err)
		return
	}
	defer n.Release(s.Conn, cmd.Who)
	defer s.Close()
	e, err := effect.Guarded(func() (Ended, error) { return start(ctx, s, cmd, p) })
	if errors.Is(err, effect.ErrPanic) {
		err = effect.Unknown("internal",
			"running a command on %s: %v; %s", n.Name, err, effect.LookFirst)
	}
	report(e, err)
}
