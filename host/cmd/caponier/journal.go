package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/caponier-mcp/caponier/host/anchor"
	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/spf13/cobra"
)

// openJournal opens the journal and publishes its anchors until close is called, which publishes
// the last one.
func openJournal(c *config.Config) (j *audit.Journal, closeJournal func(), err error) {
	publisher, err := anchor.New(c.Anchors)
	if err != nil {
		return nil, nil, usage(err)
	}
	if j, err = audit.Open(c.Audit); err != nil || publisher == nil {
		return j, func() { _ = j.Close() }, err
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { publisher.Run(ctx, j.Tip) })
	return j, func() {
		stop()
		running.Wait()
		_ = j.Close()
		if err := publisher.Publish(context.Background(), j.Tip); err != nil {
			slog.Warn("publishing the last anchor of the journal", "error", err)
		}
	}, nil
}

// journals makes a function that reads journals the body of a subcommand: those that are named, or
// that of the configuration, which is not read otherwise.
func (g *global) journals(from *[]string, do func(*verb, audit.Union) error) func(*cobra.Command,
	[]string) error {
	return func(cmd *cobra.Command, args []string) error {
		if len(*from) == 0 {
			return g.with(func(v *verb, c *config.Config) error {
				return do(v, audit.Union{{Dir: c.Audit.Dir}})
			})(cmd, args)
		}
		return g.does(func(v *verb) error {
			u, err := audit.ParseUnion(*from)
			if err != nil {
				return usage(err)
			}
			return do(v, u)
		})(cmd, args)
	}
}
