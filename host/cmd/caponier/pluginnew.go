package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/caponier-mcp/caponier/host/plugin/author"
	"github.com/spf13/cobra"
)

func pluginNew(g *global) *cobra.Command {
	var sdk, module, lang string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Write a folder with a plugin that works, to be changed",
		Args:  cobra.ExactArgs(1),
		Long: "Writes the folder NAME: a plugin with one tool, its test and a README. In Go, " +
			"--sdk names a checkout of Caponier to take the SDK from; the default is the " +
			"checkout that this program was built in, or else the released version. For the " +
			"other languages the SDK is a file that is written into the folder.",
		RunE: g.does(func(v *verb) error {
			dir, name := v.args[0], filepath.Base(v.args[0])
			mod, test, err := "", "make test", author.CheckName(name)
			if lang == author.Go {
				test = "caponier plugin test ."
				mod, err = author.GoMod(name, module, sdk, version)
			} else if sdk != "" || module != "" {
				err = fmt.Errorf("--sdk and --module are for Go, not for %s", lang)
			}
			if err != nil {
				return usage(err)
			}
			if err := author.New(dir, name, lang, mod); err != nil {
				return err
			}
			_, err = fmt.Fprintf(v.out, "%s is written. Next:\n  cd %s\n  %s\n  caponier plugin "+
				"lock --lock plugins.lock --dir build\n", dir, dir, test)
			return err
		}),
	}
	cmd.Flags().StringVar(&sdk, "sdk", "", "take the SDK from this checkout `DIR`")
	cmd.Flags().StringVar(&lang, "lang", author.Go, "`LANGUAGE`: "+
		strings.Join(author.Languages(), ", "))
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
			dir, file, err := sources(v.args[0], out)
			if err == nil {
				err = author.Test(v.ctx, dir, file, v.say)
			}
			if err != nil {
				return err
			}
			return v.claims(file, site)
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "`FILE` to write (default DIR/build/NAME.wasm)")
	siteFlag(cmd, &site)
	return cmd
}
