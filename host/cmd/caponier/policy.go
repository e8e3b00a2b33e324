package main

import (
	"encoding/json"
	"fmt"

	"github.com/caponier-mcp/caponier/host/policy"
	"github.com/spf13/cobra"
)

func policyCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Check, test and try the policies"}
	cmd.AddCommand(policyCheck(g))
	return cmd
}

// siteArg is the site's folder: the argument, or what the configuration says.
func siteArg(g *global, args []string) (string, error) {
	if len(args) == 1 {
		return args[0], nil
	}
	c, err := g.load()
	if err != nil {
		return "", fmt.Errorf("name the folder of the site's policies, or a configuration: %w", err)
	}
	return c.Policy.Site, nil
}

func policyCheck(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "check [DIR]", Short: "Load the site's policies as serve would: compile, lint, schemas, tests", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			site, err := siteArg(g, args)
			if err != nil {
				return err
			}
			engine, err := policy.New(cmd.Context(), policy.Options{Site: site})
			if err != nil {
				return failed(err)
			}
			if g.json {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{"site": site, "revision": engine.Revision()})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s would be loaded as revision %s\n", site, engine.Revision())
			return err
		},
	}
}
