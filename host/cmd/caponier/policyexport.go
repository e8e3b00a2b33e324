package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/policy/repo"
	"github.com/caponier-mcp/caponier/host/setup"
	"github.com/spf13/cobra"
)

func policyExport(g *global) *cobra.Command {
	var site string
	var starter bool
	cmd := &cobra.Command{
		Use:   "export DIR",
		Short: "Write what plain opa needs to check and test a site in a repository of its own",
		Long: "Write core, schemas, capabilities.json, the helpers of tests and a script for CI " +
			"to DIR, and beside them a copy of the site, so that plain opa check, fmt and test " +
			"work there. The tools and nodes that tests know are those of the configuration.\n\n" +
			"In a folder that an export wrote before, what it wrote is renewed, and nothing else " +
			"is touched: a site that is there stays. Any other folder must be empty.",
		Args: cobra.ExactArgs(1),
		RunE: g.with(func(v *verb, c *config.Config) error {
			lock, err := plugin.Load(c.Plugin.Lock)
			if err != nil {
				return usage(err)
			}
			if starter {
				shipped, err := setup.Find()
				if err != nil {
					return err
				}
				site = filepath.Join(shipped, "policies/site")
			} else if site, err = v.site(site); err != nil {
				return err
			}
			rep, err := repo.Write(repo.Options{Dir: v.args[0], Site: site, Version: version,
				Inventory: load.Inventory{Tools: lock.Tools(), Nodes: c.Remote.Known()}})
			if err != nil {
				return usage(err)
			}
			return v.print(rep, func(w io.Writer) { printExport(w, rep) })
		}),
	}
	cmd.Flags().StringVar(&site, "site", "",
		"the site's `DIR` to copy (default from the configuration)")
	cmd.Flags().BoolVar(&starter, "starter", false, "copy the site that Caponier brings instead")
	cmd.MarkFlagsMutuallyExclusive("site", "starter")
	return cmd
}

func printExport(w io.Writer, r repo.Report) {
	if r.Before != "" {
		fmt.Fprintf(w, "%s: renewed what version %s wrote\n", r.Dir, r.Before)
	}
	fmt.Fprintf(w, "%d files written, %d removed, %d as they were", len(r.Written), len(r.Removed),
		r.Same)
	if r.Site != "" {
		fmt.Fprintf(w, "; site/ is a copy of %s", r.Site)
	}
	fmt.Fprintf(w, "\n%s says what they are; next: sh %s (with opa %s)\n",
		filepath.Join(r.Dir, "CAPONIER.md"), filepath.Join(r.Dir, "ci.sh"), r.OPA)
}
