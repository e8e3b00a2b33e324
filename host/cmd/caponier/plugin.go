package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/sandbox"
	"github.com/spf13/cobra"
)

// describeTime bounds compiling and asking a module that nobody has locked yet.
const describeTime = 3 * time.Minute

func pluginCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "plugin",
		Short: "Write, try, test, build, lock, inspect, compare and revoke plugins"}
	cmd.AddCommand(pluginNew(g), pluginTest(g), pluginBuild(g), pluginLock(g), pluginInspect(g),
		pluginDiff(g), pluginRun(g), pluginBench(g), pluginRevoke(g), pluginDescribe(g))
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
			file, err := filepath.Abs(cmp.Or(out, filepath.Base(dir)+".wasm"))
			if err != nil {
				return err
			}
			if err := compile(v.ctx, dir, file, v.say); err != nil {
				return err
			}
			_, err = fmt.Fprintln(v.out, file)
			return err
		}),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "",
		"`FILE` to write (default NAME.wasm in this folder)")
	return cmd
}

// compile builds the Go plugin in dir to the file out; the compiler speaks to say.
func compile(ctx context.Context, dir, out string, say io.Writer) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w", "-buildmode=c-shared", "-o", out, ".")
	build.Dir, build.Stdout, build.Stderr = dir, say, say
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		return fmt.Errorf("go build in %s: %w", dir, err)
	}
	return nil
}

// pluginDescribe is the process that compiles and asks one module that is not locked yet: it is
// killed when it takes too long.
func pluginDescribe(g *global) *cobra.Command {
	return &cobra.Command{
		Use:    "describe",
		Short:  "The process in which a module is asked what it offers",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: g.does(func(v *verb) error {
			return sandbox.ServeDescribe(v.ctx, v.in, v.out)
		}),
	}
}

// describe makes the lock entry of a module's file.
func describe(ctx context.Context, file string) (plugin.Entry, error) {
	wasm, err := os.ReadFile(file)
	if err != nil {
		return plugin.Entry{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, describeTime)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return plugin.Entry{}, err
	}
	text, imports, err := sandbox.DescribeInSubprocess(ctx, []string{self, "plugin", "describe"},
		wasm)
	if err != nil {
		return plugin.Entry{}, fmt.Errorf("%s: %w", file, err)
	}
	e, err := plugin.NewEntry(filepath.Base(file), wasm, imports, text)
	if err != nil {
		return plugin.Entry{}, fmt.Errorf("%s: %w", file, err)
	}
	return e, nil
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

// inspect prints what a module is.
func (v *verb) inspect(e plugin.Entry) error {
	tools, err := e.Tools()
	if err != nil {
		return err
	}
	return v.print(e, func(w io.Writer) {
		fmt.Fprintf(w, "%s %s\n  digest   %s\n  imports  %s\n", e.Name, e.Version, e.Digest,
			strings.Join(e.Imports, " "))
		for _, t := range tools {
			fmt.Fprintf(w, "  %s %s: %s\n    imports %s; targets %s; budget %s\n    runs %s\n",
				t.Kind, t.Name, t.Title, strings.Join(t.Imports, " "),
				strings.Join(t.TargetKinds, " "), t.Budget, t.Runs)
			if t.Kind == "tool" {
				fmt.Fprintf(w, "    claims %s\n", claimed(t.Hints))
			}
			if may := plaintext.Commands(t.Commands); len(may) > 0 {
				fmt.Fprintf(w, "    may run %s\n", strings.Join(may, ", "))
			}
		}
	})
}

// claimed lists the hints of a tool for people.
func claimed(h gate.Hints) string {
	words := []string{"not read-only"}
	if h.ReadOnly {
		words[0] = "read-only"
	}
	if !h.Destructive {
		words = append(words, "not destructive")
	} else {
		words = append(words, "destructive")
	}
	if h.Idempotent {
		words = append(words, "idempotent")
	}
	if h.OpenWorld {
		words = append(words, "open world")
	}
	return strings.Join(words, ", ")
}

// toolOf returns a tool of the lock. The error names the command that mends the lock when it does
// not match the modules.
func toolOf(c *config.Config, lock *plugin.Lock, name string) (*gate.Tool, error) {
	for _, t := range lock.Tools() {
		if t.Name == name {
			return t, nil
		}
	}
	err := fmt.Errorf("no tool %q; `caponier tools` lists them", name)
	locked, stale := map[string]bool{}, []string{}
	for _, e := range lock.Plugins() {
		locked[e.File] = true
		if _, err := lock.Open(c.Plugin.Dir, e.Name); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			stale = append(stale, strings.TrimSuffix(e.File, ".wasm"))
		}
	}
	files, _ := filepath.Glob(filepath.Join(c.Plugin.Dir, "*.wasm")) // fails for bad patterns
	for _, file := range files {
		if base := filepath.Base(file); !locked[base] {
			stale = append(stale, strings.TrimSuffix(base, ".wasm"))
		}
	}
	if len(stale) == 0 {
		return nil, err
	}
	names := strings.Join(stale, " ")
	return nil, fmt.Errorf("%w. %s does not match what is in %s (%s): if that should offer it, "+
		"run `caponier plugin lock --lock %s --dir %s %s` and review the difference", err,
		c.Plugin.Lock, c.Plugin.Dir, names, c.Plugin.Lock, c.Plugin.Dir, names)
}
