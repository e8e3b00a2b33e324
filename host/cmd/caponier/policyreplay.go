package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/policy/replay"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/spf13/cobra"
)

func policyExplain(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "explain DECISION",
		Short: "Say why a journaled decision was made: the checks that did not hold, the data " +
			"they read, and what would satisfy them",
		Args: cobra.ExactArgs(1),
		RunE: g.with(func(v *verb, c *config.Config) error {
			bad := audit.BadLines{W: v.say}
			for r := range bad.Records(audit.Records(c.Audit.Dir)) {
				if r.ID != v.args[0] || r.Type == "outcome" || r.Kind == "approval" {
					continue
				}
				x, err := explained(v.ctx, c, r)
				if err != nil {
					return err
				}
				err = v.print(x, func(w io.Writer) { x.Print(w, r) })
				return cmp.Or(err, bad.Err())
			}
			return usage(fmt.Errorf("the journal in %s has no decision %s; `caponier audit tail "+
				"--json` shows their ids", c.Audit.Dir, v.args[0]))
		}),
	}
}

// explained is why a recorded decision was made.
func explained(ctx context.Context, c *config.Config, r terms.Record) (replay.Explanation, error) {
	bundle, err := audit.Policy(c.Audit.Dir, r.Revision)
	if err != nil { // the record alone says something too
		bundle = nil
	}
	return replay.Explain(ctx, r, bundle)
}

func policyReplay(g *global) *cobra.Command {
	var dir string
	var since time.Duration
	cmd := &cobra.Command{
		Use: "replay SITE",
		Short: "Decide the journal again with another site's policies: list what would be newly " +
			"refused or newly allowed (exit 3 when something would be newly allowed, 6 when " +
			"something would be newly refused, 7 for both)",
		Args: cobra.ExactArgs(1),
		RunE: g.does(func(v *verb) error {
			tuneGC() // deciding makes much garbage and keeps none of it
			if dir == "" {
				c, err := g.load()
				if err != nil {
					return err
				}
				dir = c.Audit.Dir
			}
			var unreadable error
			began := time.Now()
			diff, err := replay.Replay(v.ctx, recordsOf(dir, since, &unreadable), v.args[0])
			if err := errors.Join(err, unreadable); err != nil {
				return err
			}
			took := time.Since(began).Round(time.Millisecond)
			code := changeCode(len(diff.NewlyAllowed), len(diff.NewlyRefused))
			return v.verdict(code != exitDone, code, diff,
				func(w io.Writer) { diff.Print(w, took) })
		}),
	}
	f := cmd.Flags()
	f.StringVar(&dir, "journal", "", "the journal's `DIR` (default from the configuration)")
	f.DurationVar(&since, "since", 0, "only what was decided within this time, such as 168h")
	return cmd
}

// recordsOf yields the records of the journal, of the given time only unless that is 0. A line that
// cannot be read ends it, and its error is left in problem.
func recordsOf(dir string, since time.Duration, problem *error) iter.Seq[terms.Record] {
	return recordsFrom(dir, ago(since), problem)
}

// ago is the beginning of a time that ends now, and the zero time for 0.
func ago(since time.Duration) time.Time {
	if since <= 0 {
		return time.Time{}
	}
	return time.Now().Add(-since)
}

// recordsFrom is recordsOf for a point in time.
func recordsFrom(dir string, from time.Time, problem *error) iter.Seq[terms.Record] {
	return func(yield func(terms.Record) bool) {
		for e, err := range audit.Records(dir) {
			if err != nil {
				*problem = err
				return
			}
			if e.Record != nil && e.Record.Time.After(from) && !yield(*e.Record) {
				return
			}
		}
	}
}

// changeCode is the exit code for what would be newly allowed and newly refused.
func changeCode(more, less int) int {
	switch {
	case more > 0 && less > 0:
		return exitBoth
	case more > 0:
		return exitRefused
	case less > 0:
		return exitLess
	}
	return exitDone
}

// inventory returns what the configuration knows of tools and nodes, or nothing where there is no
// configuration: a site's folder can be checked without one.
func (g *global) inventory() (inv load.Inventory) {
	c, err := g.load()
	if err != nil {
		return inv
	}
	inv.Nodes = c.Remote.Known()
	if lock, err := plugin.Load(c.Plugin.Lock); err == nil {
		inv.Tools = lock.Tools()
	}
	return inv
}
