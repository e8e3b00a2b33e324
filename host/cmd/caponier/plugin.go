package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/sandbox"
	"github.com/spf13/cobra"
)

// describeTime bounds compiling and asking a module that nobody has locked yet.
const describeTime = 3 * time.Minute

func pluginCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "plugin",
		Short: "Write, test, build, lock, inspect and compare plugins"}
	cmd.AddCommand(pluginNew(), pluginTest(g), pluginBuild(), pluginLock(g), pluginInspect(g),
		pluginDiff(g), pluginDescribe())
	return cmd
}

func pluginBuild() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "build DIR",
		Short: "Compile the Go plugin in DIR to NAME.wasm",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			if out == "" {
				out = filepath.Base(dir) + ".wasm"
			}
			if out, err = filepath.Abs(out); err != nil {
				return err
			}
			if err := compile(cmd.Context(), dir, out, cmd.ErrOrStderr()); err != nil {
				return failed(err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), out)
			return err
		},
	}
	cmd.Flags().
		StringVarP(&out, "output", "o", "", "`FILE` to write (default NAME.wasm in this folder)")
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

// pluginDescribe is the process that compiles and asks one module that nobody has locked yet: it is
// killed when it takes too long.
func pluginDescribe() *cobra.Command {
	return &cobra.Command{
		Use:    "describe",
		Short:  "The process in which a module is asked what it offers",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return failed(sandbox.ServeDescribe(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout()))
		},
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

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func pluginInspect(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "inspect FILE.wasm",
		Short: "Show what a module is, imports and offers, without running a tool",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := describe(cmd.Context(), args[0])
			if err != nil {
				return failed(err)
			}
			return failed(inspect(cmd.OutOrStdout(), e, g.json))
		},
	}
}

func inspect(w io.Writer, e plugin.Entry, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(e)
	}
	fmt.Fprintf(w, "%s %s\n  digest   %s\n  imports  %s\n", e.Name, e.Version, e.Digest,
		strings.Join(e.Imports, " "))
	tools, err := e.Tools()
	for _, t := range tools {
		fmt.Fprintf(w, "  %s %s: %s\n    imports %s; targets %s; budget %s\n    runs %s\n", t.Kind,
			t.Name, t.Title, strings.Join(t.Imports, " "), strings.Join(t.TargetKinds, " "),
			t.Budget, t.Runs)
		if may := gate.DescribeCommands(t.Commands); len(may) > 0 {
			fmt.Fprintf(w, "    may run %s\n", strings.Join(may, ", "))
		}
	}
	return err
}

// unlocked lists the modules beside the locked ones.
func unlocked(dir string, locked map[string]bool) (files []string) {
	// fails for bad patterns only: then nothing is said
	all, _ := filepath.Glob(filepath.Join(dir, "*.wasm"))
	for _, file := range all {
		if !locked[filepath.Base(file)] {
			files = append(files, file)
		}
	}
	return files
}

// noTool says that the lock has no such tool, and which command mends the lock when it does not
// match the modules.
func (h *host) noTool(name string) error {
	locked, stale := map[string]bool{}, []string{}
	for _, e := range h.lock.Plugins() {
		locked[e.File] = true
		if _, err := h.lock.Open(h.cfg.Plugin.Dir, e.Name); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			stale = append(stale, strings.TrimSuffix(e.File, ".wasm"))
		}
	}
	for _, file := range unlocked(h.cfg.Plugin.Dir, locked) {
		stale = append(stale, strings.TrimSuffix(filepath.Base(file), ".wasm"))
	}
	err := fmt.Errorf("no tool %q; `caponier tools` lists them", name)
	if len(stale) > 0 {
		err = fmt.Errorf(
			"%w. %s does not match what is in %s (%s): if that should offer it, run `%s` and "+
				"review the difference",
			err, h.cfg.Plugin.Lock, h.cfg.Plugin.Dir, strings.Join(stale, ", "),
			relock(h.cfg.Plugin, stale...))
	}
	return err
}

// relock is the command that writes what the modules are into the lock.
func relock(o plugin.Options, names ...string) string {
	return strings.TrimSpace(
		fmt.Sprintf("caponier plugin lock --lock %s --dir %s %s", o.Lock, o.Dir,
			strings.Join(names, " ")),
	)
}
