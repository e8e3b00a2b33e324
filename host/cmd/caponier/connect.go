package main

import (
	"github.com/caponier-mcp/caponier/client/connect"
	"github.com/spf13/cobra"
)

func connectCommand(g *global) *cobra.Command {
	var file, ca string
	cmd := &cobra.Command{
		Use:   "connect URL",
		Short: "Bridge an MCP client's stdio to a host that serves HTTP, with a token",
		Args:  cobra.ExactArgs(1),
		Long: "For clients that start servers and cannot send a token, or have no place to keep " +
			"one. It\nneeds no configuration. caponier-connect is the same alone, for other " +
			"systems.",
		Example: "  caponier connect https://caponier.example.org/mcp --token-file ~/.caponier-token",
		RunE: g.does(func(v *verb) error {
			token, err := connect.Token(file)
			if err != nil {
				return usage(err)
			}
			err = connect.Run(v.ctx, connect.Options{URL: v.args[0], Token: token, CAFile: ca,
				In: v.in, Out: v.out, Say: v.say, UserAgent: "caponier/" + version})
			if err != nil {
				return usage(err)
			}
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVar(&file, "token-file", "", "the `FILE` with the token (default: $CAPONIER_TOKEN)")
	f.StringVar(&ca, "ca", "", "a `FILE` with certificates in PEM to trust beside the system's")
	return cmd
}
