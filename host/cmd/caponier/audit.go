package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/spf13/cobra"
)

func auditCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Read and verify the journal"}
	cmd.AddCommand(auditTail(g), auditVerify(g))
	return cmd
}

func auditTail(g *global) *cobra.Command {
	var follow bool
	var last int
	cmd := &cobra.Command{
		Use: "tail", Short: "Show the last calls: who asked, what was decided, which operations ran, how it ended", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.load()
			if err != nil {
				return err
			}
			return tail(cmd.Context(), cmd.OutOrStdout(), c.Audit.Dir, last, follow, g.json)
		},
	}
	cmd.Flags().
		BoolVarP(&follow, "follow", "f", false, "go on as records are written, until interrupted")
	cmd.Flags().IntVarP(&last, "calls", "n", 20, "how many calls")
	return cmd
}

func auditVerify(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "verify", Short: "Check every hash chain of the journal (exit 1 if one was changed)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.load()
			if err != nil {
				return err
			}
			began := time.Now()
			report, err := audit.Verify(c.Audit.Dir)
			if err != nil {
				return failed(err)
			}
			if g.json {
				if err := json.NewEncoder(cmd.OutOrStdout()).Encode(report); err != nil {
					return failed(err)
				}
			} else {
				printReport(cmd.OutOrStdout(), report, time.Since(began))
			}
			if !report.OK() {
				return &exit{code: exitFailed}
			}
			return nil
		},
	}
}

func printReport(w io.Writer, r audit.Report, took time.Duration) {
	records := int64(0)
	for _, f := range r.Files {
		records += f.Entries
	}
	for _, p := range r.Warnings {
		fmt.Fprintln(w, "warning:", p)
	}
	for _, u := range r.Unfinished {
		fmt.Fprintf(
			w,
			"warning: call %s: %s %s was allowed and begun, and its outcome was never written: look at the node\n",
			u.CallID,
			u.Tool,
			u.Op,
		)
	}
	for _, p := range r.Problems {
		fmt.Fprintln(w, "CHANGED:", p)
	}
	verdict := "every chain holds"
	if !r.OK() {
		verdict = "the journal is NOT what was written"
	}
	fmt.Fprintf(
		w,
		"%s: %d records in %d files, checked in %s\n",
		verdict,
		records,
		len(r.Files),
		took.Round(time.Millisecond),
	)
}

// tail prints the last calls, oldest first, and with follow goes on until ctx ends.
func tail(ctx context.Context, w io.Writer, dir string, last int, follow, asJSON bool) error {
	var order []string // of calls, as they begin
	seen := map[string]bool{}
	for e, err := range audit.Records(dir) {
		if err != nil {
			return failed(err)
		}
		if e.Record != nil && !seen[e.Record.CallID] {
			seen[e.Record.CallID] = true
			order = append(order, e.Record.CallID)
		}
	}
	for _, id := range order[:max(0, len(order)-last)] {
		seen[id] = false
	}
	source := audit.Records(dir)
	if follow {
		source = audit.Follow(ctx, dir)
	}
	wanted := func(yield func(audit.Entry, error) bool) {
		for e, err := range source {
			if e.Record != nil {
				if show, known := seen[e.Record.CallID]; known && !show {
					continue
				}
			}
			if !yield(e, err) {
				return
			}
		}
	}
	if !asJSON {
		return failed(audit.Tree(w, wanted))
	}
	out := json.NewEncoder(w)
	for e, err := range wanted {
		if err != nil {
			return failed(err)
		}
		if e.Record != nil {
			if err := out.Encode(e.Record); err != nil {
				return failed(err)
			}
		}
	}
	return nil
}
