package main

import (
	"github.com/caponier-mcp/caponier/host/audit"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/spf13/cobra"
)

// journals makes a function that reads journals the body of a subcommand: those that are named, or
// that of the configuration, which is not read otherwise.
func (g *global) journals(from *[]string, do func(*verb, audit.Union) error) func(*cobra.Command,
	[]string) error {
	return func(cmd *cobra.Command, args []string) error {
		if len(*from) == 0 {
			return g.with(func(v *verb, c *config.Config) error {
				return do(v, audit.Union{{Dir: c.Audit.Dir}})
			})(cmd, args)
		}
		return g.does(func(v *verb) error {
			u, err := audit.ParseUnion(*from)
			if err != nil {
				return usage(err)
			}
			return do(v, u)
		})(cmd, args)
	}
}
