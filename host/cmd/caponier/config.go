package main

import (
	"fmt"
	"io"
	"os"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/setup"
	"github.com/spf13/cobra"
)

func configMigrate(g *global) *cobra.Command {
	var write bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Show what a configuration of an older version needs, and write it with --write",
		Long: "Keys that are no more become comments that say what to do instead. Without " +
			"--write\nnothing is changed; with it the old text stays beside the new one, and " +
			"nothing is\nwritten that this version would not take.",
		Args: cobra.NoArgs,
		RunE: g.does(func(v *verb) error {
			file, err := config.Find(g.config, g.profile)
			if err != nil {
				return usage(err)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return usage(err)
			}
			now, changes := config.Migrate(text)
			old := ""
			if changes == "" { // a key in an inline table is not found by its line
				_, err = config.Load(file, os.Environ())
			}
			if write && changes != "" {
				old, err = setup.Rewrite(file, now, func(file string) error {
					_, err := config.Load(file, os.Environ())
					return err
				})
			}
			if err != nil {
				return fmt.Errorf("%s%w; nothing was changed", changes, err)
			}
			result := map[string]any{"config": file, "changes": changes, "old": old}
			return v.print(result, func(w io.Writer) {
				switch {
				case changes == "":
					fmt.Fprintf(w, "%s has no key of an older version\n", file)
				case old == "":
					fmt.Fprintf(w, "%s, line %s--write writes it\n", file, changes)
				default:
					fmt.Fprintf(w, "%s, line %sis written; %s is the old text\n", file, changes,
						old)
				}
			})
		}),
	}
	cmd.Flags().BoolVar(&write, "write", false, "write it")
	return cmd
}
