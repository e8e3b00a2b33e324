package main

import (
	"fmt"

	"github.com/caponier-mcp/caponier/host/audit/index"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/spf13/cobra"
)

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
