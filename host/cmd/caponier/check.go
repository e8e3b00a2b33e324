package main

import (
	"encoding/json"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/doctor"
	"github.com/spf13/cobra"
)

func checkCommand(g *global) *cobra.Command {
	var offline bool
	cmd := &cobra.Command{
		Use: "check",
		Short: "Examine configuration, policies, lock, state and nodes, and say how to fix what " +
			"is wrong",
		Args: cobra.NoArgs,
		Long: "Examines everything that a call needs. It changes nothing: it creates no " +
			"directory,\n" +
			"decides and journals nothing, and runs only fixed commands that read on the nodes\n" +
			"(docs/first-node.md lists them). Exits with 0 when nothing fails (warnings do not\n" +
			"count), 1 when something does, 2 when the configuration cannot be used at all.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var findings doctor.Findings
			file, err := config.Find(g.config, g.profile)
			c := (*config.Config)(nil)
			if err == nil {
				c, err = g.load()
			}
			if err != nil {
				findings = doctor.Findings{doctor.Configuration(file, err)}
			} else if findings = doctor.Local(cmd.Context(), c); !offline {
				findings = append(findings, doctor.Nodes(cmd.Context(), c)...)
			}
			failures, warnings := findings.Count()
			if g.json {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"failed": failures,
					"warned": warnings, "findings": findings})
			} else {
				err = findings.Print(cmd.OutOrStdout())
			}
			switch {
			case err != nil:
				return failed(err)
			case c == nil:
				return &exit{code: exitUsage}
			case failures > 0:
				return &exit{code: exitFailed}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "do not connect to the nodes")
	return cmd
}
