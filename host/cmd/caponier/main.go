// Command caponier lets MCP clients operate Proxmox nodes through sandboxed plugins, each step
// decided by policy.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/spf13/cobra"
)

// Exit codes (docs/design.md, section 6).
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3
	exitWaiting = 4
	exitUnknown = 5
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

func failed(err error) error {
	if err == nil {
		return nil
	}
	return &exit{exitFailed, err}
}

// global holds the flags that every subcommand shares.
type global struct {
	config, profile string
	json            bool

	readOnly                 bool // these four only narrow what the configuration allows
	toolsets, tools, exclude []string
}

// narrowing adds the flags that narrow what is offered.
func (g *global) narrowing(cmd *cobra.Command) {
	cmd.Flags().
		BoolVar(&g.readOnly, "read-only", false, "only what policy calls green, whatever else is "+
			"asked for or approved")
	cmd.Flags().
		StringSliceVar(&g.toolsets, "toolsets", nil, "offer only the tools of these `PLUGINS`, "+
			"separated by commas")
	cmd.Flags().
		StringSliceVar(&g.tools, "tools", nil, "offer only these `TOOLS`, beside those of "+
			"--toolsets")
	cmd.Flags().
		StringSliceVar(&g.exclude, "exclude-tools", nil, "leave these `TOOLS` or plugins out")
	// --toolsets "$NOTHING" must not mean everything
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, f := range []string{"toolsets", "tools", "exclude-tools"} {
			if names, err := cmd.Flags().GetStringSlice(f); err == nil && cmd.Flags().Changed(f) &&
				len(names) == 0 {
				return fmt.Errorf("--%s is empty: name some, or leave it out", f)
			}
		}
		return nil
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	root := command()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var e *exit
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &e):
		if e.err != nil {
			// a node has a say in some errors
			fmt.Fprintln(os.Stderr, "caponier:", plaintext.Clean(e.err.Error()))
		}
		return e.code
	}
	fmt.Fprintln(os.Stderr, "caponier:", err)
	return exitUsage
}

func command() *cobra.Command {
	g := &global{}
	root := &cobra.Command{Use: "caponier",
		Short: "The host that lets an LLM agent operate Proxmox nodes, each step decided " +
			"by Rego and journaled",
		SilenceUsage: true, SilenceErrors: true}
	root.PersistentFlags().
		StringVar(&g.config, "config", os.Getenv("CAPONIER_CONFIG"),
			"configuration `FILE` (default $CAPONIER_CONFIG, config.toml, then the user's "+
				"configuration directory)")
	root.PersistentFlags().
		StringVar(&g.profile, "profile", os.Getenv("CAPONIER_PROFILE"),
			"`NAME` of another configuration beside it: config.NAME.toml")
	root.PersistentFlags().BoolVar(&g.json, "json", false, "machine-readable output")
	root.AddCommand(serveCommand(g), callCommand(g), toolsCommand(g), checkCommand(g),
		approvalsCommand(g), freezeCommand(g), thawCommand(g), auditCommand(g), pluginCommand(g),
		policyCommand(g), tokenCommand(g), hostsCommand(g), healthCommand(g), warmCommand(g),
		versionCommand(g))
	return root
}
