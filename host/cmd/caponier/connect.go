package main

import (
	"github.com/caponier-mcp/caponier/client/command"
	"github.com/spf13/cobra"
)

func connectCommand(g *global) *cobra.Command {
	var b command.Connect
	cmd := &cobra.Command{
		Use:   "connect URL",
		Short: "Bridge an MCP client's stdio to a host that serves HTTP, with a token or a sign-in",
		Args:  cobra.ExactArgs(1),
		Long: "For clients that start servers and cannot send a token, or have no place to keep " +
			"one. It\nneeds no configuration. Without a token, where the host names a provider, " +
			"it opens a browser to\nsign in there (OAuth), and keeps that for the next time. " +
			"caponier-connect is the same alone,\nfor other systems.",
		Example: "  caponier connect https://caponier.example.org/mcp --token-file ~/.caponier-token" +
			"\n  caponier connect https://caponier.example.org/mcp --login",
		RunE: g.does(func(v *verb) error {
			b.In, b.Out, b.Say, b.UserAgent = v.in, v.out, v.say, "caponier/"+version
			if err := b.Run(v.ctx, v.args[0]); err != nil {
				return usage(err)
			}
			return nil
		}),
	}
	for _, f := range b.Flags() {
		switch to := f.To.(type) {
		case *string:
			cmd.Flags().StringVar(to, f.Name, "", f.Usage)
		case *bool:
			cmd.Flags().BoolVar(to, f.Name, false, f.Usage)
		case *int:
			cmd.Flags().IntVar(to, f.Name, 0, f.Usage)
		}
	}
	return cmd
}
