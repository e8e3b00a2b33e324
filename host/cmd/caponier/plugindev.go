package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/watch"
	"github.com/spf13/cobra"
)

// develop builds a plugin and calls one tool of it, again after each change of a file.
type develop struct {
	trial
	dir, build, module string
	lab                bool
}

func pluginDev(g *global) *cobra.Command {
	var d develop
	cmd := &cobra.Command{
		Use:   "dev DIR TOOL [JSON]",
		Short: "Build the plugin in DIR and call one of its tools, again after each change",
		Args:  cobra.RangeArgs(2, 3),
		Long: "Builds DIR, checks what the module claims, and calls the tool. When a file of DIR " +
			"or the\nanswers change, it does so again, until it is interrupted. The tool runs as " +
			"in plugin run,\nand reaches nothing; with --lab the call goes through the door of " +
			"the configuration,\nall of whose nodes must then be on the loopback, with a lock " +
			"that this process alone uses.\nA plugin in another language has a command that " +
			"builds it: --build and --module.",
		Example: `  caponier plugin dev hello hello_kernel --answers answers.yaml
  caponier --config lab/config.toml plugin dev hello hello_kernel '{"node":"pve1"}' --lab
  caponier plugin dev zig zig_status --build 'zig build' --module zig-out/zig.wasm`,
		RunE: g.does(d.run),
	}
	d.flags(cmd)
	d.claims = true
	f := cmd.Flags()
	f.BoolVar(&d.plan, "plan", false, "plan the call instead")
	f.BoolVar(&d.lab, "lab", false, "call through the door of the configuration, whose nodes must "+
		"be on the loopback")
	f.StringVar(&d.build, "build", "", "`COMMAND` that builds the module, in DIR (default: Go's "+
		"compiler)")
	f.StringVar(&d.module, "module", "", "the module `FILE` that is built (default "+
		"DIR/build/NAME.wasm)")
	cmd.MarkFlagsRequiredTogether("build", "module")
	cmd.MarkFlagsMutuallyExclusive("lab", "answers")
	return cmd
}

func (d *develop) run(v *verb) (err error) {
	if d.dir, d.module, err = sources(v.args[0], d.module); err != nil {
		return err
	}
	if info, err := os.Stat(d.dir); err != nil || !info.IsDir() {
		return usage(fmt.Errorf("there is no folder %s; `caponier plugin new NAME` makes one",
			d.dir))
	}
	round := d.offline
	if d.lab {
		tmp, err := os.MkdirTemp("", "caponier-dev-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		v.development = &development{filepath.Dir(d.module), filepath.Join(tmp, "plugins.lock")}
		if _, err := v.load(); err != nil {
			return err
		}
		round = d.inLab
	}
	files := watch.Files{What: "the plugin's files", Dirs: d.dirs, Concerns: d.concerns}
	seen := ""
	files.Follow(v.ctx, func(missed error) {
		if missed != nil {
			fmt.Fprintln(v.say, "caponier:", missed)
		}
		// the folder of the answers may hold files that have nothing to do with it
		if now := d.sources(); now != seen {
			seen = now
			d.round(v, round)
		}
	})
	return nil
}

// sources is another text when a source file or the answers have changed.
func (d *develop) sources() string {
	var text strings.Builder
	note := func(path string) {
		if info, err := os.Stat(path); err == nil {
			fmt.Fprintln(&text, path, info.Size(), info.ModTime().UnixNano(), info.Mode())
		}
	}
	note(d.answers)
	dirs, _ := d.dirs()
	for _, dir := range dirs {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if d.concerns(e.Name()) && strings.HasPrefix(dir, d.dir) {
				note(filepath.Join(dir, e.Name()))
			}
		}
	}
	return text.String()
}

// round builds and calls once. What fails is told, and mended by the next change.
func (d *develop) round(v *verb, call func(*verb) error) {
	began, used := time.Now(), processorsUsed()
	err := d.compile(v)
	compiled, usedBy := time.Since(began), processorsUsed()
	if err == nil {
		err = call(v)
	}
	var told *exit // without an error: the answer said it
	if err != nil && v.ctx.Err() == nil && (!errors.As(err, &told) || told.err != nil) {
		fmt.Fprintln(v.say, "caponier:", plaintext.Clean(err.Error()))
	}
	fmt.Fprintf(v.say, "-- %s: built in %.1f s, %.1f s in all (of the processors %.1f s and %.1f "+
		"s); waiting for a change\n", began.Format(time.TimeOnly), compiled.Seconds(),
		time.Since(began).Seconds(), (usedBy - used).Seconds(), (processorsUsed() - used).Seconds())
}

// compile runs the compiler, in Go as plugin build does.
func (d *develop) compile(v *verb) error {
	if d.build == "" {
		return compile(v, d.dir, d.module)
	}
	cmd := exec.CommandContext(v.ctx, "sh", "-c", d.build)
	cmd.Dir, cmd.Stdout, cmd.Stderr = d.dir, v.say, v.say
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s in %s: %w", d.build, d.dir, err)
	}
	return nil
}

// offline calls the tool as plugin run does.
func (d *develop) offline(v *verb) error {
	run := *v
	run.args = slices.Concat([]string{d.module}, v.args[1:])
	return d.trial.run(&run)
}

// inLab locks the module for this process, and calls the tool through the door.
func (d *develop) inLab(v *verb) error {
	e, err := describe(v.ctx, d.module)
	if err == nil {
		err = checkClaims(d.site, e)
	}
	if err != nil {
		return err
	}
	text, err := plugin.Encode([]plugin.Entry{e})
	if err != nil {
		return err
	}
	if err := plugin.Write(v.development.lock, text); err != nil {
		return err
	}
	run := *v
	run.args = v.args[1:]
	return run.call(d.plan)
}

// skipped are folders of which nothing is source: what is built, and what compilers keep.
var skipped = []string{"build", "node_modules", "target", "zig-out", "vendor"}

// dirs returns the folders that hold sources, and that of the answers.
func (d *develop) dirs() (dirs []string, err error) {
	err = filepath.WalkDir(d.dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || !e.IsDir():
			return err
		case path != d.dir && (strings.HasPrefix(e.Name(), ".") ||
			slices.Contains(skipped, e.Name())):
			return fs.SkipDir
		}
		dirs = append(dirs, path)
		return nil
	})
	if d.answers != "" {
		if dir := filepath.Dir(d.answers); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, err
}

// concerns leaves out what is built, and what editors keep beside a file.
func (d *develop) concerns(name string) bool {
	return !strings.HasPrefix(name, ".") && !strings.HasSuffix(name, "~") &&
		!strings.HasSuffix(name, ".wasm") && !slices.Contains(skipped, name)
}

// processorsUsed is what this process and its children used.
func processorsUsed() (used time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			used += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return used
}
