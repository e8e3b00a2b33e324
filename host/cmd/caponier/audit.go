package main

import (
	"cmp"
	"fmt"
	"io"

	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/audit/index"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/plan"
	"github.com/spf13/cobra"
)

func auditCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Read and verify the journal"}
	var from []string
	for _, reads := range []*cobra.Command{auditTail(g, &from), auditShow(g, &from),
		auditVerify(g, &from), auditQuery(g, &from)} {
		reads.Flags().StringArrayVar(&from, "journal", nil, "read the journal of a host, or a "+
			"copy, in DIR; `NAME=DIR` once for each of several (default: of the configuration)")
		cmd.AddCommand(reads)
	}
	cmd.AddCommand(auditKey(g), auditExport(g), auditIndex(g))
	return cmd
}

func auditTail(g *global, from *[]string) *cobra.Command {
	var follow bool
	var last int
	cmd := &cobra.Command{
		Use: "tail",
		Short: "Show the last calls: the caller, the decision, the operations that ran, and the " +
			"outcome",
		Args: cobra.NoArgs,
		RunE: g.journals(from, func(v *verb, u audit.Union) error {
			return audit.Tail(v.ctx, v.out, v.say, u, last, follow, g.json)
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false,
		"continue with new records as they are written, until interrupted")
	cmd.Flags().IntVarP(&last, "calls", "n", 20, "`NUMBER` of calls")
	return cmd
}

func auditShow(g *global, from *[]string) *cobra.Command {
	return &cobra.Command{
		Use: "show CALL",
		Short: "Show one call, or one dry run: its plan and what happened, side by side, and who " +
			"approved it",
		Args: cobra.ExactArgs(1),
		RunE: g.journals(from, func(v *verb, u audit.Union) error {
			bad := audit.BadLines{W: v.say}
			s, found, err := plan.Show(v.args[0], bad.Records(u.Records()))
			if err == nil && !found {
				err = usage(fmt.Errorf("no call %s is in %s; `caponier audit tail --json` shows "+
					"their ids", v.args[0], u))
			}
			if err != nil {
				return err
			}
			all := struct {
				plan.Shown
				Shadow []audit.Shadow `json:"shadow"` // what candidate policies answer
			}{s, u.Shadows(v.args[0])}
			err = v.print(all, func(w io.Writer) {
				_ = s.Text(w)
				for _, a := range all.Shadow {
					fmt.Fprint(w, a)
				}
			})
			return cmp.Or(err, bad.Err())
		}),
	}
}

func auditIndex(g *global) *cobra.Command {
	rebuild := false
	cmd := &cobra.Command{
		Use:   "index",
		Short: "Bring the console's index of the journal up to date, or make it again",
		Long: "Bring the console's index of the journal up to date. A server with a console does " +
			"so by itself.\nThe index says where records are, and never what they say: it can be " +
			"made again at any time,\nwhile no server with a console runs.",
		Args: cobra.NoArgs,
		RunE: g.with(func(v *verb, c *config.Config) error {
			if rebuild {
				if err := index.Remove(indexDir(c)); err != nil {
					return err
				}
			}
			x, err := index.Open(v.ctx, indexDir(c), c.Audit.Dir)
			if err != nil {
				return err
			}
			defer x.Close()
			all := 0
			err = x.Update(v.ctx, func(n int) { all = n })
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(v.out, "%d entries of the journal were indexed\n", all)
			return err
		}),
	}
	cmd.Flags().BoolVar(&rebuild, "rebuild", false, "remove the index first")
	return cmd
}
