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
		checkCommand(g), initCommand(g), uninstallCommand(g), connectCommand(g),
		approvalsCommand(g), freezeCommand(g), thawCommand(g), auditCommand(g), healthCommand(g),
		warmCommand(g), clusterCommand(g), snapshotsCommand(g), undoCommand(g), versionCommand(g),
		group("node", "Change which nodes the configuration has", nodeRemove(g)),
		group("config", "Bring a configuration up to this version", configMigrate(g)),
		group("client", "Tell MCP clients how to start this program", clientAdd(g),
			clientRemove(g)),
		group("hosts", "Find out the host keys of nodes", hostsScan(g)),
		group("token", "Make, list and revoke bearer tokens of HTTP callers ([identity] tokens)",
			tokenNew(g), tokenList(g), tokenRevoke(g)),
		group("policy", "Check, test and try the policies", policyCheck(g), policyTest(g),
			policyEval(g), policyExplain(g), policyReplay(g), policyGrammar(g), policyCan(g),
			policyExport(g), policyShadow(g), policyPromote(g), policySuggest(g), policyUnused(g)),
		group("plugin", "Write, try, test, build, publish, take, verify, lock and revoke plugins",
			pluginNew(g), pluginTest(g), pluginBuild(g), pluginLock(g), pluginInspect(g),
			pluginDiff(g), pluginRun(g), pluginBench(g), pluginRevoke(g), pluginDescribe(g),
			pluginPush(g), pluginPull(g), pluginVerify(g), pluginDev(g)))
	return root
}
