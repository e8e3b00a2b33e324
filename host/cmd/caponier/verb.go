package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/observe"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/recording"
	"github.com/spf13/cobra"
)

// Exit codes (docs/design.md, section 5).
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3
	exitWaiting = 4
	exitUnknown = 5
	exitLess    = 6 // of a replay: something would be newly refused
	exitBoth    = 7 // and something newly allowed
)

// exit is an error that ends the program with a code. A nil err prints nothing more.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// usage marks an error of what the user wrote: flags, arguments, configuration.
func usage(err error) error { return &exit{exitUsage, err} }

// global holds the flags that every subcommand shares.
type global struct {
	config, profile string
	json            bool
	log             observe.LogOptions  // instead of those of the configuration
	logs            io.Writer           // where the log goes, without secrets; nil: stderr
	pluginLog       *slog.Logger        // of the sandbox; nil: the host's log
	recorder        *recording.Recorder // of what operations return; nil: none
	development     *development        // of plugin dev; nil: what the configuration has

	readOnly                 bool // these four only narrow what the configuration allows
	toolsets, tools, exclude []string
}

// narrowing adds the flags that narrow what is offered.
func (g *global) narrowing(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&g.readOnly, "read-only", false,
		"only what policy calls green, whatever else is asked for or approved")
	f.StringSliceVar(&g.toolsets, "toolsets", nil,
		"offer only the tools of these `PLUGINS`, separated by commas")
	f.StringSliceVar(&g.tools, "tools", nil,
		"offer only these `TOOLS`, beside those of --toolsets")
	f.StringSliceVar(&g.exclude, "exclude-tools", nil, "leave these `TOOLS` or plugins out")
	// --toolsets "$NOTHING" must not mean everything
	cmd.PreRunE = func(*cobra.Command, []string) error {
		for name, list := range map[string][]string{
			"toolsets": g.toolsets, "tools": g.tools, "exclude-tools": g.exclude} {
			if f.Changed(name) && len(list) == 0 {
				return fmt.Errorf("--%s is empty: name some, or leave it out", name)
			}
		}
		return nil
	}
}

// load reads the configuration that the flags choose and narrow.
func (g *global) load() (*config.Config, error) {
	file, err := config.Find(g.config, g.profile)
	if err != nil {
		return nil, usage(err)
	}
	cfg, err := config.Load(file, os.Environ())
	if err != nil {
		return nil, usage(err)
	}
	cfg.Log.Format = cmp.Or(g.log.Format, cfg.Log.Format)
	cfg.Log.Level = cmp.Or(g.log.Level, cfg.Log.Level)
	if err := cfg.Log.Validate(); err != nil {
		return nil, usage(err)
	}
	g.logs = plaintext.Without(os.Stderr, cfg.Secrets)
	slog.SetDefault(cfg.Log.Logger(g.logs))
	if g.development != nil {
		if err := g.development.apply(cfg); err != nil {
			return nil, usage(err)
		}
	}
	cfg.ReadOnly = cfg.ReadOnly || g.readOnly
	cfg.Tools.Toolsets, cfg.Tools.Tools, cfg.Tools.Exclude = g.toolsets, g.tools, g.exclude
	return cfg, nil
}

// verb is one run of a subcommand.
type verb struct {
	*global
	ctx      context.Context
	args     []string
	in       io.Reader
	out, say io.Writer // results, and remarks about them
}

// does makes a function the body of a subcommand. Its error ends the program with exitFailed,
// unless the error carries another code.
func (g *global) does(do func(*verb) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := do(&verb{g, cmd.Context(), args, cmd.InOrStdin(), cmd.OutOrStdout(),
			cmd.ErrOrStderr()})
		if err == nil || errors.As(err, new(*exit)) {
			return err
		}
		return &exit{exitFailed, err}
	}
}

// with makes a function that needs the configuration the body of a subcommand, as does.
func (g *global) with(do func(*verb, *config.Config) error) func(*cobra.Command, []string) error {
	return g.does(func(v *verb) error {
		c, err := g.load()
		if err != nil {
			return err
		}
		return do(v, c)
	})
}

// print prints a result: as JSON with --json, else as what text writes.
func (v *verb) print(result any, text func(w io.Writer)) error {
	if v.json {
		return plaintext.JSON(v.out, result)
	}
	var b bytes.Buffer
	text(&b)
	_, err := b.WriteTo(v.out)
	return err
}

// verdict prints a result, and ends the program with a code if it is bad.
func (v *verb) verdict(bad bool, code int, result any, text func(w io.Writer)) error {
	err := v.print(result, text)
	if err == nil && bad {
		return &exit{code: code}
	}
	return err
}

// list prints a list: as JSON with --json, else in columns below a heading.
func list[T any](v *verb, all []T, heading string, row func(T) []string) error {
	return v.print(append([]T{}, all...), func(w io.Writer) { table(w, all, heading, row) })
}

func table[T any](w io.Writer, all []T, heading string, row func(T) []string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(heading, "|", "\t"))
	for _, x := range all {
		fmt.Fprintln(t, strings.Join(row(x), "\t"))
	}
	_ = t.Flush() // w is a buffer
}

// site returns the folder of the site's policies: the one that was named, or what the configuration
// says.
func (g *global) site(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	c, err := g.load()
	if err != nil {
		return "", fmt.Errorf("name the folder of the site's policies, or a configuration: %w", err)
	}
	return c.Policy.Site, nil
}

// group is a command that only has subcommands.
func group(use, short string, of ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short}
	cmd.AddCommand(of...)
	return cmd
}
