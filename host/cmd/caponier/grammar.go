package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/spf13/cobra"
)

func policyGrammar(g *global) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "grammar [WORD...]",
		Short: "List the commands that policy knows: programs, sub-commands, options, operands, " +
			"tier",
		Long: "List the commands that policy knows, or with WORD, such as zpool or \"pct " +
			"status\", what " +
			"they take. A role still has to grant them, by name or by group.",
		RunE: func(cmd *cobra.Command, args []string) error {
			site := dir
			if site == "" {
				var err error
				if site, err = siteArg(g, nil); err != nil {
					return err
				}
			}
			word := strings.Join(args, " ")
			list, err := load.Grammar(cmd.Context(), site, word)
			if err != nil {
				return failed(err)
			}
			if len(list) == 0 {
				return failed(fmt.Errorf("policy knows no command %q: caponier policy grammar "+
					"lists all; "+
					"a site adds programs under binaries in data.yaml", word))
			}
			if g.json {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(list)
			}
			printGrammar(cmd.OutOrStdout(), list, word != "")
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "site", "", "folder of the site's policies (default: the "+
		"configured one)")
	return cmd
}

// printGrammar writes a line for each command, and with all its options and its source too.
func printGrammar(w io.Writer, list []load.Command, all bool) {
	for _, c := range list {
		from := ""
		if c.Site {
			from = "  (of the site)"
		}
		fmt.Fprintf(w, "%-6s  %-15s  %s%s\n", c.Tier, c.Group,
			strings.Join(append([]string{c.Name}, c.Operands...), " "), from)
		if !all {
			continue
		}
		for _, o := range slices.Sorted(maps.Keys(c.Options)) {
			sep := " "
			if strings.HasSuffix(o, "=") || c.Options[o] == "" {
				sep = ""
			}
			need := ""
			if slices.Contains(c.Required, o) {
				need = "  (required)"
			}
			fmt.Fprintf(w, "    %s%s%s%s\n", o, sep, c.Options[o], need)
		}
		if c.Source != "" {
			fmt.Fprintf(w, "    from %s\n", c.Source)
		}
	}
}
