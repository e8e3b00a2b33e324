// Command connect is `caponier connect` alone, for machines that the host does not run on.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/caponier-mcp/caponier/client/command"
)

// version is set by the linker in released builds.
var version = "dev"

func main() {
	o := command.Connect{In: os.Stdin, Out: os.Stdout, Say: os.Stderr,
		UserAgent: "caponier-connect/" + version}
	for _, f := range o.Flags() {
		switch to := f.To.(type) {
		case *string:
			flag.StringVar(to, f.Name, "", f.Usage)
		case *bool:
			flag.BoolVar(to, f.Name, false, f.Usage)
		case *int:
			flag.IntVar(to, f.Name, 0, f.Usage)
		}
	}
	flag.Usage = func() {
		fmt.Fprintf(os.Stderr, "caponier-connect %s\nusage: caponier-connect [flags] URL\n",
			version)
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := o.Run(ctx, flag.Arg(0))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "caponier-connect:", err)
		os.Exit(1)
	}
}
