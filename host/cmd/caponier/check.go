package main

import (
	"io"

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
			"directory,\ndecides and journals nothing, and runs only fixed commands that read " +
			"on the nodes\n(docs/first-node.md lists them). Exits with 0 when nothing fails " +
			"(warnings do not\ncount), 1 when something does, 2 when the configuration cannot be " +
			"used at all.",
		RunE: g.does(func(v *verb) error {
			findings, code := g.examine(v, offline)
			failures, warnings := findings.Count()
			return v.verdict(failures > 0, code, map[string]any{"failed": failures,
				"warned": warnings, "findings": findings},
				func(w io.Writer) { _ = findings.Print(w) })
		}),
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "connect to no node and no database")
	return cmd
}

// examine returns the findings, and the exit code if one of them is a failure.
func (g *global) examine(v *verb, offline bool) (doctor.Findings, int) {
	file, err := config.Find(g.config, g.profile)
	var c *config.Config
	if err == nil {
		c, err = g.load()
	}
	if err != nil {
		return doctor.Findings{doctor.Configuration(file, err)}, exitUsage
	}
	findings := doctor.Local(v.ctx, c)
	if !offline {
		findings = append(findings, doctor.Shared(v.ctx, c)...)
		findings = append(findings, doctor.Nodes(v.ctx, c)...)
	}
	return findings, exitFailed
}
