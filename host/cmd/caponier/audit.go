package main

import (
	"encoding/json"
	"fmt"
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
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on as records are written, until interrupted")
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
				fmt.Fprint(cmd.OutOrStdout(), report)
				fmt.Fprintf(cmd.OutOrStdout(), "checked in %s\n", time.Since(began).Round(time.Millisecond))
			}
			if !report.OK() {
				return &exit{code: exitFailed}
			}
			return nil
		},
	}
}
