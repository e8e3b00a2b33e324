// Command connect is `caponier connect` alone, for machines that the host does not run on.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/caponier-mcp/caponier/client/connect"
)

// version is set by the linker in released builds.
var version = "dev"

func main() {
	token := flag.String("token-file", "", "the `FILE` with the token (default: $CAPONIER_TOKEN)")
	ca := flag.String("ca", "", "a `FILE` with certificates in PEM to trust beside the system's")
	flag.Usage = func() {
		fmt.Fprintf(
			os.Stderr,
			"caponier-connect %s\nusage: caponier-connect [flags] URL\n",
			version,
		)
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	secret, err := connect.Token(*token)
	if err == nil {
		err = connect.Run(ctx, connect.Options{URL: flag.Arg(0), Token: secret, CAFile: *ca,
			In: os.Stdin, Out: os.Stdout, Say: os.Stderr, UserAgent: "caponier-connect/" + version})
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "caponier-connect:", err)
		os.Exit(1)
	}
}
