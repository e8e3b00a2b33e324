// Command pvelab runs a simulated Proxmox VE cluster: see the package pvelab.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/caponier-mcp/caponier/test/pvelab"
)

const usage = `usage: pvelab --state DIR [--listen ADDR] [--effects FILE] [--write-config FILE]
              [--latency D] [--plugins DIR] [--lock FILE] [--site DIR]     serve until SIGTERM
       pvelab install --state DIR [--node N] [--effects FILE] [--root /] BINDIR    write pct, qm, pvesh … wrappers
       pvelab run --state DIR --node N [--effects FILE] [--root DIR] -- ARGV…      run one command
`

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	var o pvelab.Options
	fs := flag.NewFlagSet("pvelab", flag.ContinueOnError)
	fs.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	fs.StringVar(&o.State, "state", "", "directory of the lab")
	fs.StringVar(&o.Effects, "effects", "", "file for one JSON line for each effect")
	fs.DurationVar(&o.Latency, "latency", 0, "added to each start of pct, qm, pvesh")
	verb := "serve"
	if len(args) > 0 && slices.Contains([]string{"serve", "install", "run"}, args[0]) {
		verb, args = args[0], args[1:]
	}
	node := "pve1"
	switch verb {
	case "serve":
		fs.StringVar(&o.Listen, "listen", "127.0.0.1:0", "address of the first node")
		fs.StringVar(&o.Config, "write-config", "", "where to write config.toml")
		fs.StringVar(&o.Plugins, "plugins", "", "[plugin] dir")
		fs.StringVar(&o.Lock, "lock", "", "[plugin] lock")
		fs.StringVar(&o.Site, "site", "", "[policy] site")
	default:
		fs.StringVar(&node, "node", node, "node that the command runs on")
		fs.StringVar(&o.NodeRoot, "root", map[string]string{"install": "/"}[verb], "directory that pct sees as the node's /")
	}
	if err := fs.Parse(args); err != nil {
		return 2
	}
	o.RealWaits = o.Latency > 0
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var code int
	var err error
	switch {
	case verb == "install" && fs.NArg() == 1:
		err = pvelab.Install(ctx, o, node, fs.Arg(0))
	case verb == "run" && fs.NArg() > 0:
		code, err = pvelab.RunOnce(ctx, o, node, fs.Args(), os.Environ(), os.Stdin, os.Stdout, os.Stderr)
	case verb == "serve" && fs.NArg() == 0:
		err = serve(ctx, o)
	default:
		fs.Usage()
		return 2
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func serve(ctx context.Context, o pvelab.Options) error {
	lab, err := pvelab.Start(ctx, o)
	if err != nil {
		return err
	}
	fmt.Println("ready", lab.Addr)
	<-ctx.Done()
	return lab.Close()
}
