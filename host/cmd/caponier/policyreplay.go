package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/policy/replay"
	"github.com/spf13/cobra"
)

func policyExplain(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "explain DECISION",
		Short: "Say why a journaled decision was made: the checks that did not hold, the data " +
			"they read, and what would satisfy them",
		Args: cobra.ExactArgs(1),
		RunE: g.does(func(v *verb) error {
			c, err := g.load()
			if err != nil {
				return err
			}
			bad := badLines{w: v.say}
			for r := range bad.records(audit.Records(c.Audit.Dir)) {
				if r.ID != v.args[0] || r.Type == "outcome" || r.Kind == "approval" {
					continue
				}
				bundle, err := audit.Policy(c.Audit.Dir, r.Revision)
				if err != nil {
					return err
				}
				x, err := replay.Explain(v.ctx, r, bundle)
				if err != nil {
					return err
				}
				err = v.print(x, func(w io.Writer) { printExplanation(w, r, x) })
				return cmp.Or(err, bad.err())
			}
			return usage(fmt.Errorf("the journal in %s has no decision %s; `caponier audit tail "+
				"--json` shows their ids", c.Audit.Dir, v.args[0]))
		}),
	}
}

func printExplanation(w io.Writer, r gate.Record, x replay.Explanation) {
	fmt.Fprintf(w, "%s %s of %s for %s: %s at tier %s by revision %s\n", r.Kind,
		strings.TrimSpace(r.Op+" "+r.Phase), r.Tool, r.Principal, allowed(x.Allowed), x.Tier,
		x.Revision)
	if !x.Same {
		fmt.Fprintln(w, "decided again, the result differs from the journal: values that are "+
			"redacted there are missing")
	}
	for _, c := range x.Checks {
		fmt.Fprintf(w, "\n%s did not hold: %s\n  remedy: %s\n", c.ID, c.Says, c.Remedy)
		for _, s := range c.Stuck {
			fmt.Fprintf(w, "  stuck at %s\n", s)
		}
		for path, value := range c.Data {
			if data, err := json.Marshal(value); err == nil {
				fmt.Fprintf(w, "  %s = %s\n", path, data)
			}
		}
	}
}

func policyReplay(g *global) *cobra.Command {
	var dir string
	var since time.Duration
	cmd := &cobra.Command{
		Use: "replay SITE",
		Short: "Decide the journal again with another site's policies: list what would be newly " +
			"refused or newly allowed (exit 3 when something would be newly allowed)",
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
			err = v.print(diff, func(w io.Writer) { printDiff(w, diff, took) })
			if err == nil && len(diff.NewlyAllowed) > 0 {
				return &exit{code: exitRefused}
			}
			return err
		}),
	}
	f := cmd.Flags()
	f.StringVar(&dir, "journal", "", "the journal's `DIR` (default from the configuration)")
	f.DurationVar(&since, "since", 0, "only what was decided within this time, such as 168h")
	return cmd
}

// recordsOf yields the records of the journal, of the given time only unless that is 0. A line that
// cannot be read ends it, and its error is left in problem.
func recordsOf(dir string, since time.Duration, problem *error) iter.Seq[gate.Record] {
	return func(yield func(gate.Record) bool) {
		from := time.Time{}
		if since > 0 {
			from = time.Now().Add(-since)
		}
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

func printDiff(w io.Writer, d replay.Diff, took time.Duration) {
	for _, part := range []struct {
		what    string
		changes []replay.Change
	}{{"NEWLY ALLOWED", d.NewlyAllowed}, {"newly refused", d.NewlyRefused},
		{"refused for other reasons", d.OtherReasons}} {
		slices.SortFunc(part.changes,
			func(a, b replay.Change) int { return strings.Compare(a.DecisionID, b.DecisionID) })
		for _, c := range part.changes {
			fmt.Fprintf(w, "%s: %s %s for %s on %s: was [%s], would be [%s] (%s)\n", part.what,
				c.Kind, strings.TrimSpace(c.Tool+" "+c.Op), c.Principal, cmp.Or(c.On, "nothing"),
				strings.Join(c.Before, " "), strings.Join(c.After, " "), c.DecisionID)
		}
	}
	if d.Decided == 0 {
		fmt.Fprintln(w, "NOTHING WAS DECIDED AGAIN: the journal holds no policy decision of this "+
			"time, so this result says nothing about the candidate")
	}
	fmt.Fprintf(w, "%d decisions, %d the same, %d newly allowed, %d newly refused, %d skipped, "+
		"%d in an older form, in %s; candidate %s\n", d.Decided, d.Same, len(d.NewlyAllowed),
		len(d.NewlyRefused), d.Skipped, d.Older, took, d.Candidate)
}
