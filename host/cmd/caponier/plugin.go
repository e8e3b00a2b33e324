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

func pluginBuild(g *global) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "build DIR",
		Short: "Compile the Go plugin in DIR to NAME.wasm",
		Args:  cobra.ExactArgs(1),
		RunE: g.does(func(v *verb) error {
			dir, file, err := sources(v.args[0], out)
			if err == nil {
				err = compile(v, dir, file)
			}
			if err == nil {
				_, err = fmt.Fprintln(v.out, file)
			}
			return err
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "",
		"`FILE` to write (default DIR/build/NAME.wasm)")
	return cmd
}

// sources returns the folder of a plugin and the module that is made of it: out, or that of the
// folder.
func sources(of, out string) (dir, file string, err error) {
	if dir, err = filepath.Abs(of); err == nil {
		file, err = filepath.Abs(cmp.Or(out, built(dir)))
	}
	return dir, file, err
}

// compile makes a module of the Go plugin in a folder.
func compile(v *verb, dir, file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return author.Build(v.ctx, dir, file, v.say)
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
		RunE: g.does(func(v *verb) error { return v.claims(v.args[0], site) }),
	}
	siteFlag(cmd, &site)
	return cmd
}

// claims shows what a module is, and holds what it claims against the command grammar.
func (v *verb) claims(file, site string) error {
	e, err := describe(v.ctx, file)
	if err == nil {
		err = v.inspect(e)
	}
	if err != nil {
		return err
	}
	return checkClaims(site, e)
}
