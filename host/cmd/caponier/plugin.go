package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/caponier-mcp/caponier/host/plugin/author"
	"github.com/caponier-mcp/caponier/host/sandbox"
	"github.com/spf13/cobra"
)

func pluginCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "plugin",
		Short: "Write, try, test, build, publish, take, verify, lock and revoke plugins"}
	cmd.AddCommand(pluginNew(g), pluginTest(g), pluginBuild(g), pluginLock(g), pluginInspect(g),
		pluginDiff(g), pluginRun(g), pluginBench(g), pluginRevoke(g), pluginDescribe(g),
		pluginPush(g), pluginPull(g), pluginVerify(g), pluginDev(g))
	return cmd
}

func pluginBuild(g *global) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "build DIR",
		Short: "Compile the Go plugin in DIR to NAME.wasm",
		Args:  cobra.ExactArgs(1),
		RunE: g.does(func(v *verb) error {
			dir, err := filepath.Abs(v.args[0])
			if err != nil {
				return err
			}
			file, err := filepath.Abs(cmp.Or(out, built(dir)))
			if err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				return err
			}
			if err := author.Build(v.ctx, dir, file, v.say); err != nil {
				return err
			}
			_, err = fmt.Fprintln(v.out, file)
			return err
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "",
		"`FILE` to write (default DIR/build/NAME.wasm)")
	return cmd
}

// pluginDescribe is the process that compiles and asks one module that is not locked yet: it is
// killed when it takes too long.
func pluginDescribe(g *global) *cobra.Command {
	return &cobra.Command{
		Use:    "describe",
		Short:  "The process in which a module is asked what it offers",
		Hidden: true,
		Args:   cobra.ExactArgs(1), // directory of compiled modules, "" for none
		RunE: g.does(func(v *verb) error {
			return sandbox.ServeDescribe(v.ctx, v.in, v.out, v.args[0])
		}),
	}
}

func pluginInspect(g *global) *cobra.Command {
	site := ""
	cmd := &cobra.Command{
		Use:   "inspect FILE.wasm",
		Short: "Show what a module is, imports, offers and claims, without running a tool",
		Args:  cobra.ExactArgs(1),
		Long: "Prints what the lock would hold. Fails when a claim contradicts the command " +
			"grammar:\nread_only with a command above green, not destructive with a red one, a " +
			"command that\nthe grammar does not have, an import that no tool declares.",
		RunE: g.does(func(v *verb) error {
			e, err := describe(v.ctx, v.args[0])
			if err != nil {
				return err
			}
			if err := v.inspect(e); err != nil {
				return err
			}
			return checkClaims(site, e)
		}),
	}
	siteFlag(cmd, &site)
	return cmd
}
