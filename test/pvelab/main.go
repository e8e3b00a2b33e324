package pvelab

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

const usageText = `usage: pvelab --state DIR [--listen ADDR] [--effects FILE] [--write-config FILE]
              [--latency D] [--plugins DIR] [--lock FILE] [--site DIR]
              [--fault NAME,…]
           serve until SIGTERM
       pvelab install --state DIR [--node N] [--effects FILE] [--root /] BINDIR
           write pct, qm, pvesh … wrappers
       pvelab run --state DIR --node N [--effects FILE] [--root DIR] -- ARGV…
           run one command
`

// Main is the program pvelab: it serves a lab until SIGTERM or SIGINT, installs wrappers or runs
// one command, and answers the exit code: 2 for a wrong command line, 1 when the lab could not
// start, else the command's own.
func Main(args []string, in io.Reader, out, errw io.Writer) int {
	var o Options
	fs := flag.NewFlagSet("pvelab", flag.ContinueOnError)
	fs.SetOutput(errw)
	fs.Usage = func() { fmt.Fprint(errw, usageText) }
	fs.StringVar(&o.State, "state", "", "directory of the lab")
	fs.StringVar(&o.Effects, "effects", "", "file for one JSON line for each effect")
	fs.DurationVar(&o.Latency, "latency", 0, "added to each start of pct, qm, pvesh")
	verb := "serve"
	if len(args) > 0 && slices.Contains([]string{"serve", "install", "run"}, args[0]) {
		verb, args = args[0], args[1:]
	}
	node := "pve1"
	if verb == "serve" {
		fs.StringVar(&o.Listen, "listen", "127.0.0.1:0", "address of the first node")
		fs.StringVar(&o.Config, "write-config", "", "where to write config.toml")
		fs.StringVar(&o.Plugins, "plugins", "", "[plugin] dir")
		fs.StringVar(&o.Lock, "lock", "", "[plugin] lock")
		fs.StringVar(&o.Site, "site", "", "[policy] site")
		fs.StringVar(&o.Faults, "fault", "", "what is wrong with the cluster: "+faultNames())
	} else {
		fs.StringVar(&node, "node", node, "node that the command runs on")
		fs.StringVar(&o.NodeRoot, "root", map[string]string{"install": "/"}[verb],
			"directory that pct sees as the node's /")
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
		err = Install(ctx, o, node, fs.Arg(0))
	case verb == "run" && fs.NArg() > 0:
		code, err = RunOnce(ctx, o, node, fs.Args(), os.Environ(), in, out, errw)
	case verb == "serve" && fs.NArg() == 0:
		err = serve(ctx, o, out)
	default:
		fs.Usage()
		return 2
	}
	if err != nil {
		fmt.Fprintln(errw, err)
		return 1
	}
	return code
}

func serve(ctx context.Context, o Options, out io.Writer) error {
	lab, err := Start(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready", lab.Addr)
	<-ctx.Done()
	return lab.Close()
}
