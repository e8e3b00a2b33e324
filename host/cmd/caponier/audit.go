package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plan"
	"github.com/spf13/cobra"
)

func auditCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Read and verify the journal"}
	cmd.AddCommand(auditTail(g), auditShow(g), auditVerify(g), auditKey(g))
	return cmd
}

func auditTail(g *global) *cobra.Command {
	var follow bool
	var last int
	cmd := &cobra.Command{
		Use: "tail",
		Short: "Show the last calls: the caller, the decision, the operations that ran, and the " +
			"outcome",
		Args: cobra.NoArgs,
		RunE: g.does(func(v *verb) error {
			c, err := g.load()
			if err != nil {
				return err
			}
			return tail(v.ctx, v.out, v.say, c.Audit.Dir, last, follow, g.json)
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false,
		"continue with new records as they are written, until interrupted")
	cmd.Flags().IntVarP(&last, "calls", "n", 20, "`NUMBER` of calls")
	return cmd
}

// tail prints the last calls, oldest first, and with follow goes on until ctx ends. It warns of bad
// lines of the journal, and fails at the end if there was one.
func tail(ctx context.Context, w, warnings io.Writer, dir string, last int,
	follow, asJSON bool) error {
	var order []string // of calls, as they begin
	old := map[string]bool{}
	quiet := badLines{w: io.Discard}
	for r := range quiet.records(audit.Records(dir)) {
		if _, known := old[r.CallID]; !known {
			old[r.CallID] = false
			order = append(order, r.CallID)
		}
	}
	for _, id := range order[:max(0, len(order)-last)] {
		old[id] = true
	}
	source := audit.Records(dir)
	if follow {
		source = audit.Follow(ctx, dir)
	}
	bad := badLines{w: warnings}
	wanted := func(yield func(gate.Record) bool) {
		for r := range bad.records(source) {
			if !old[r.CallID] && !yield(r) {
				return
			}
		}
	}
	if !asJSON {
		if err := audit.Tree(w, wanted); err != nil {
			return err
		}
		return bad.err()
	}
	for r := range wanted {
		if err := writeJSON(w, r); err != nil {
			return err
		}
	}
	return bad.err()
}

// badLines warns of journal lines that cannot be read, and counts them.
type badLines struct {
	w io.Writer
	n int
}

// records yields the records among the entries, and warns of lines that are no entries.
func (b *badLines) records(entries iter.Seq2[audit.Entry, error]) iter.Seq[gate.Record] {
	const most = 20
	return func(yield func(gate.Record) bool) {
		for e, err := range entries {
			if err == nil {
				if e.Record != nil && !yield(*e.Record) {
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
	return fmt.Errorf("%d lines of the journal cannot be read, so the output may be incomplete; "+
		"run `caponier audit verify`", b.n)
}

func auditShow(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "show CALL",
		Short: "Show one call, or one dry run: its plan and what happened, side by side, and who " +
			"approved it",
		Args: cobra.ExactArgs(1),
		RunE: g.does(func(v *verb) error {
			c, err := g.load()
			if err != nil {
				return err
			}
			bad := badLines{w: v.say}
			s, found, err := plan.Show(v.args[0], bad.records(audit.Records(c.Audit.Dir)))
			if err == nil && !found {
				err = usage(fmt.Errorf("the journal in %s has no call %s; `caponier audit tail "+
					"--json` shows their ids", c.Audit.Dir, v.args[0]))
			}
			if err != nil {
				return err
			}
			err = v.print(s, func(w io.Writer) { _ = s.Text(w) })
			return cmp.Or(err, bad.err())
		}),
	}
}
