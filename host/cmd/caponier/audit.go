package main

import (
	"cmp"
	"fmt"
	"io"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/plan"
	"github.com/spf13/cobra"
)

func auditCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Read and verify the journal"}
	cmd.AddCommand(auditTail(g), auditShow(g), auditVerify(g), auditKey(g),
		auditQuery(g), auditExport(g))
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
		RunE: g.with(func(v *verb, c *config.Config) error {
			return audit.Tail(v.ctx, v.out, v.say, c.Audit.Dir, last, follow, g.json)
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false,
		"continue with new records as they are written, until interrupted")
	cmd.Flags().IntVarP(&last, "calls", "n", 20, "`NUMBER` of calls")
	return cmd
}

func auditShow(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "show CALL",
		Short: "Show one call, or one dry run: its plan and what happened, side by side, and who " +
			"approved it",
		Args: cobra.ExactArgs(1),
		RunE: g.with(func(v *verb, c *config.Config) error {
			bad := audit.BadLines{W: v.say}
			s, found, err := plan.Show(v.args[0], bad.Records(audit.Records(c.Audit.Dir)))
			if err == nil && !found {
				err = usage(fmt.Errorf("the journal in %s has no call %s; `caponier audit tail "+
					"--json` shows their ids", c.Audit.Dir, v.args[0]))
			}
			if err != nil {
				return err
			}
			err = v.print(s, func(w io.Writer) { _ = s.Text(w) })
			return cmp.Or(err, bad.Err())
		}),
	}
}
