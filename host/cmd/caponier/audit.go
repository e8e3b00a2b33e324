package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
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
		Use: "tail",
		Short: "Show the last calls: who asked, what was decided, which operations ran, how it " +
			"ended",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.load()
			if err != nil {
				return err
			}
			return tail(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), c.Audit.Dir, last,
				follow, g.json)
		},
	}
	cmd.Flags().
		BoolVarP(&follow, "follow", "f", false, "go on as records are written, until interrupted")
	cmd.Flags().IntVarP(&last, "calls", "n", 20, "how many calls")
	return cmd
}

func auditVerify(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "verify",
		Short: "Check every hash chain of the journal (exit 1 if one was changed)",
		Args:  cobra.NoArgs,
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
		fmt.Fprintf(w,
			"warning: call %s: %s %s was allowed and begun, and its outcome was never written: "+
				"look at the node\n",
			u.CallID, u.Tool, u.Op)
	}
	for _, p := range r.Problems {
		fmt.Fprintln(w, "CHANGED:", p)
	}
	verdict := "every chain holds"
	if !r.OK() {
		verdict = "the journal is NOT what was written"
	}
	fmt.Fprintf(w, "%s: %d records in %d files, checked in %s\n", verdict, records, len(r.Files),
		took.Round(time.Millisecond))
}

// badLines warns of journal lines that cannot be read, and counts them.
type badLines struct {
	w io.Writer
	n int
}

// skip yields the entries of records, and warns of what is none.
func (b *badLines) skip(records iter.Seq2[audit.Entry, error]) iter.Seq2[audit.Entry, error] {
	const most = 20
	return func(yield func(audit.Entry, error) bool) {
		for e, err := range records {
			if err == nil {
				if !yield(e, nil) {
					return
				}
				continue
			}
			switch b.n++; {
			case b.n <= most:
				fmt.Fprintln(b.w, "warning:", err)
			case b.n == most+1:
				fmt.Fprintln(b.w, "warning: more lines are bad; `caponier audit verify` names "+
					"the first of each file")
			}
		}
	}
}

// err makes the command fail after it has shown what can be read.
func (b *badLines) err() error {
	if b.n == 0 {
		return nil
	}
	return &exit{exitFailed, fmt.Errorf("%d lines of the journal cannot be read; what is shown "+
		"may "+
		"be incomplete; run `caponier audit verify`", b.n)}
}

// tail prints the last calls, oldest first, and with follow goes on until ctx ends. Bad lines of
// the journal are warned of on warnings, and make it fail at the end.
func tail(
	ctx context.Context, w, warnings io.Writer, dir string, last int, follow, asJSON bool) error {
	var order []string // of calls, as they begin
	seen := map[string]bool{}
	quiet := badLines{w: io.Discard}
	for e := range quiet.skip(audit.Records(dir)) {
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
	bad := badLines{w: warnings}
	wanted := func(yield func(audit.Entry, error) bool) {
		for e := range bad.skip(source) {
			if e.Record != nil {
				if show, known := seen[e.Record.CallID]; known && !show {
					continue
				}
			}
			if !yield(e, nil) {
				return
			}
		}
	}
	if !asJSON {
		if err := audit.Tree(w, wanted); err != nil {
			return failed(err)
		}
		return bad.err()
	}
	out := json.NewEncoder(w)
	for e := range wanted {
		if e.Record != nil {
			if err := out.Encode(e.Record); err != nil {
				return failed(err)
			}
		}
	}
	return bad.err()
}
