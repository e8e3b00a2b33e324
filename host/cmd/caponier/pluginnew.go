package main

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/caponier-mcp/caponier/host/plugin/author"
	"github.com/spf13/cobra"
)

func pluginNew(g *global) *cobra.Command {
	var sdk, module string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Write a folder with a plugin that works, to be changed",
		Args:  cobra.ExactArgs(1),
		Long: "Writes the folder NAME: a Go module with one tool, its tests and a README. --sdk " +
			"names a checkout of Caponier to take the SDK from. The default is the checkout " +
			"that this program was built in, or else the released version.",
		RunE: g.does(func(v *verb) error {
			dir, name := v.args[0], filepath.Base(v.args[0])
			mod, err := author.GoMod(name, module, sdk, version)
			if err != nil {
				return usage(err)
			}
			if err := author.New(dir, name, mod); err != nil {
				return err
			}
			_, err = fmt.Fprintf(v.out, "%s is written. Next:\n  cd %s\n  caponier plugin "+
				"test .\n  caponier plugin lock --lock plugins.lock --dir build\n", dir, dir)
			return err
		}),
	}
	cmd.Flags().StringVar(&sdk, "sdk", "", "take the SDK from this checkout `DIR`")
	cmd.Flags().StringVar(&module, "module", "", "the Go module `PATH` (default example.com/NAME)")
	return cmd
}

func pluginTest(g *global) *cobra.Command {
	var out, site string
	cmd := &cobra.Command{
		Use:   "test DIR",
		Short: "Vet, test and compile the Go plugin in DIR, and check it by the rules of the lock",
		Args:  cobra.ExactArgs(1),
		Long: "Runs go vet and go test in DIR, compiles it to DIR/build/NAME.wasm, then loads " +
			"the module as a host would and shows what the lock will say of it.",
		RunE: g.does(func(v *verb) error {
			dir, err := filepath.Abs(v.args[0])
			if err != nil {
				return err
			}
			file, err := filepath.Abs(cmp.Or(out, built(dir)))
			if err != nil {
				return err
			}
			if err := author.Test(v.ctx, dir, file, v.say); err != nil {
				return err
			}
			e, err := describe(v.ctx, file)
			if err != nil {
				return err
			}
			if err := v.inspect(e); err != nil {
				return err
			}
			return checkClaims(site, e)
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "`FILE` to write (default DIR/build/NAME.wasm)")
	siteFlag(cmd, &site)
	return cmd
}
