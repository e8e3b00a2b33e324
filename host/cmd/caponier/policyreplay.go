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
		Short: "Say why a journaled decision was made: which checks did not hold, on which data, " +
			"what would satisfy them",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.load()
			if err != nil {
				return err
			}
			bad := badLines{w: cmd.ErrOrStderr()}
			for e := range bad.skip(audit.Records(c.Audit.Dir)) {
				if e.Record == nil || e.Record.ID != args[0] || e.Record.Type == "outcome" ||
					e.Record.Kind == "approval" {
					continue
				}
				bundle, err := audit.Policy(c.Audit.Dir, e.Record.Revision)
				if err != nil {
					return failed(err)
				}
				x, err := replay.Explain(cmd.Context(), *e.Record, bundle)
				if err != nil {
					return failed(err)
				}
				if g.json {
					err := json.NewEncoder(cmd.OutOrStdout()).Encode(x)
					return cmp.Or(err, bad.err())
				}
				printExplanation(cmd.OutOrStdout(), *e.Record, x)
				return bad.err()
			}
			return &exit{
				exitUsage,
				fmt.Errorf(
					"the journal in %s has no decision %s; `caponier audit tail --json` shows "+
						"their ids",
					c.Audit.Dir, args[0]),
			}
		},
	}
}

func printExplanation(w io.Writer, r gate.Record, x replay.Explanation) {
	word := map[bool]string{true: "allowed", false: "refused"}[x.Allowed]
	fmt.Fprintf(w, "%s %s of %s for %s: %s at tier %s by revision %s\n", r.Kind,
		strings.TrimSpace(r.Op+" "+r.Phase), r.Tool, r.Principal, word, x.Tier, x.Revision)
	if !x.Same {
		fmt.Fprintln(w,
			"decided again it comes out otherwise than in the journal: values that were redacted "+
				"there are missing")
	}
	for _, c := range x.Checks {
		fmt.Fprintf(w, "\n%s did not hold: %s\n  remedy: %s\n", c.ID, c.Says, c.Remedy)
		for _, s := range c.Stuck {
			fmt.Fprintf(w, "  stuck at %s\n", s)
		}
		for path, value := range c.Data {
			data, err := json.Marshal(value)
			if err == nil {
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
		Short: "Decide the journal again with another site's policies: what would be newly " +
			"refused, or newly allowed (exit 3)",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
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
			diff, err := replay.Replay(cmd.Context(), recordsOf(dir, since, &unreadable), args[0])
			if err := errors.Join(err, unreadable); err != nil {
				return failed(err)
			}
			if g.json {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(diff)
			} else {
				printDiff(cmd.OutOrStdout(), diff, time.Since(began))
			}
			if err == nil && len(diff.NewlyAllowed) > 0 {
				return &exit{code: exitRefused}
			}
			return failed(err)
		},
	}
	cmd.Flags().
		StringVar(&dir, "journal", "", "the journal's `DIR` (default from the configuration)")
	cmd.Flags().
		DurationVar(&since, "since", 0, "only what was decided within this time, such as 168h")
	return cmd
}

// recordsOf yields the journal's records; what cannot be read ends it and is left in problem.
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
			fmt.Fprintf(w, "%s: %s %s%s for %s on %s: was [%s], would be [%s] (%s)\n", part.what,
				c.Kind, c.Tool, spaced(c.Op), c.Principal, cmp.Or(c.On, "nothing"),
				strings.Join(c.Before, " "), strings.Join(c.After, " "), c.DecisionID)
		}
	}
	if d.Decided == 0 {
		fmt.Fprintln(w,
			"NOTHING WAS DECIDED AGAIN: the journal holds no decision of a policy within this "+
				"time, so this says nothing about the candidate")
	}
	fmt.Fprintf(w,
		"%d decisions, %d the same, %d newly allowed, %d newly refused, %d skipped, %d in an "+
			"older form, in %s; candidate %s\n",
		d.Decided, d.Same, len(d.NewlyAllowed), len(d.NewlyRefused), d.Skipped, d.Older,
		took.Round(time.Millisecond), d.Candidate)
}

func spaced(op string) string {
	if op == "" {
		return ""
	}
	return " " + op
}
