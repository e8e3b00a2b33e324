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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(execute(ctx, os.Args[1:]))
}

func execute(ctx context.Context, args []string) int {
	root := rootCommand()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	e := &exit{code: exitUsage, err: err}
	if told := errors.As(err, &e); !told && cmd.Runnable() { // of cobra
		err = fmt.Errorf("%w; want: %s", err, cmd.UseLine())
	}
	if e.err != nil {
		// a node has a say in some errors
		fmt.Fprintln(os.Stderr, "caponier:", plaintext.Clean(err.Error()))
	}
	return e.code
}

func rootCommand() *cobra.Command {
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
	f.StringVar(&g.log.Format, "log-format", "",
		"`FORMAT` of the log on the standard error: text (key=value) or json")
	f.StringVar(&g.log.Level, "log-level", "",
		"records below this `LEVEL` are left out of the log: debug, info, warn, error")
	root.AddCommand(serveCommand(g), callCommand(g), planCommand(g), toolsCommand(g),
		checkCommand(g), initCommand(g), nodeCommand(g), configCommand(g), uninstallCommand(g),
		clientCommand(g), connectCommand(g),
		approvalsCommand(g), freezeCommand(g), thawCommand(g), auditCommand(g), pluginCommand(g),
		policyCommand(g), tokenCommand(g), hostsCommand(g), healthCommand(g), warmCommand(g),
		clusterCommand(g), snapshotsCommand(g), undoCommand(g), versionCommand(g))
	return root
}
