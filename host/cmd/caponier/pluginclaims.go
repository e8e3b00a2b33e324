package main

import (
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/spf13/cobra"
)

// siteFlag adds the flag that names a site whose programs are known beside those of the core.
func siteFlag(cmd *cobra.Command, site *string) {
	cmd.Flags().StringVar(site, "site", "",
		"also know the programs that the site in this `DIR` describes (binaries)")
}

// checkClaims holds what plugins claim against the command grammar, of the core and of a site.
func checkClaims(site string, entries ...plugin.Entry) error {
	tiers, err := load.Tiers(site)
	if err != nil {
		return usage(err)
	}
	for _, e := range entries {
		if err := e.Claims(tiers); err != nil {
			return err
		}
	}
	return nil
}
