package main

import (
	"bytes"
	"fmt"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/observe"
	"github.com/spf13/cobra"
)

func healthCommand(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "health ADDR",
		Short: "Ask a server of this configuration whether it is healthy: for supervisors in " +
			"images that have no other program",
		Args: cobra.ExactArgs(1),
		RunE: g.with(func(v *verb, c *config.Config) error {
			asker, err := observe.NewAsker(c.Front.TLSCert)
			if err != nil {
				return usage(err)
			}
			body, err := asker.Ask(v.args[0])
			if body != nil {
				fmt.Fprintf(v.out, "%s\n", bytes.TrimSpace(body))
			}
			return err
		}),
	}
}
