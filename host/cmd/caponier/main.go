// Command caponier lets MCP clients operate Proxmox nodes through sandboxed plugins, each step
// decided by policy.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	root := command()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	e := &exit{code: exitUsage, err: err} // of cobra
	if !errors.As(err, &e) || e.err != nil {
		// a node has a say in some errors
		fmt.Fprintln(os.Stderr, "caponier:", plaintext.Clean(err.Error()))
	}
	return e.code
}

func command() *cobra.Command {
	g := &global{}
	root := &cobra.Command{Use: "caponier",
		Short: "The host that lets an LLM agent operate Proxmox nodes, each step decided " +
			"by Rego and journaled",
		SilenceUsage: true, SilenceErrors: true}
	f := root.PersistentFlags()
	f.StringVar(&g.config, "config", os.Getenv("CAPONIER_CONFIG"), "configuration `FILE` (default "+
		"$CAPONIER_CONFIG, config.toml, then the user's configuration directory)")
	f.StringVar(&g.profile, "profile", os.Getenv("CAPONIER_PROFILE"),
		"`NAME` of another configuration beside it: config.NAME.toml")
	f.BoolVar(&g.json, "json", false, "machine-readable output")
	root.AddCommand(serveCommand(g), callCommand(g), planCommand(g), toolsCommand(g),
		checkCommand(g), initCommand(g), clientCommand(g), connectCommand(g),
		approvalsCommand(g), freezeCommand(g), thawCommand(g), auditCommand(g), pluginCommand(g),
		policyCommand(g), tokenCommand(g), hostsCommand(g), healthCommand(g), warmCommand(g),
		snapshotsCommand(g), undoCommand(g), versionCommand(g))
	return root
}

// global holds the flags that every subcommand shares.
type global struct {
	config, profile string
	json            bool
	pluginLog       *slog.Logger // of the sandbox; nil: the host's log

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
	log.SetOutput(plaintext.Without(os.Stderr, cfg.Secrets))
	cfg.ReadOnly = cfg.ReadOnly || g.readOnly
	cfg.Tools.Toolsets, cfg.Tools.Tools, cfg.Tools.Exclude = g.toolsets, g.tools, g.exclude
	return cfg, nil
}
