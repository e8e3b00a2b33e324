package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/caponier-mcp/caponier/client/command"
	"github.com/caponier-mcp/caponier/client/settings"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/spf13/cobra"
)

func clientAdd(g *global) *cobra.Command {
	var file string
	var show bool
	cmd := &cobra.Command{
		Use:   "add CLIENT",
		Short: "Add an entry for this program and its configuration to a client's file",
		Long: "CLIENT is one of " + strings.Join(settings.Clients(), ", ") + ".\nThe old file " +
			"stays beside the new one. An entry that is there already stays; another one of\n" +
			"the same name, a link, and a file that cannot be read are refused, and the entry " +
			"is printed.",
		Args: cobra.ExactArgs(1),
		RunE: g.does(func(v *verb) error {
			text, to, err := v.entry(g, file)
			if err != nil {
				return err
			}
			if show {
				_, err := fmt.Fprintf(v.out, "%s:\n%s", to, text)
				return err
			}
			s, err := server(g.config)
			if err != nil {
				return err
			}
			done, err := settings.AddTo(v.args[0], to, s)
			if err == nil {
				fmt.Fprintln(v.out, done)
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&file, "file", "", "another `FILE` than the client's own for this user")
	cmd.Flags().BoolVar(&show, "print", false, "print the entry and its place, and write nothing")
	return cmd
}

func clientRemove(g *global) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "remove CLIENT",
		Short: "Take the entry that client add wrote out of a client's file",
		Long: "The old file stays beside the new one. An entry that was changed since, a link, " +
			"and a file\nthat cannot be read are refused. Without an entry, nothing is changed.",
		Args: cobra.ExactArgs(1),
		RunE: g.does(func(v *verb) error {
			_, to, err := v.entry(g, file)
			if err != nil {
				return err
			}
			s, err := server(g.config)
			if err != nil {
				return err
			}
			done, err := settings.RemoveFrom(v.args[0], to, s)
			if err == nil {
				fmt.Fprintln(v.out, done)
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&file, "file", "", "another `FILE` than the client's own for this user")
	return cmd
}

// entry finds the configuration, and returns a client's entry for it and the file that it belongs
// in, which is file unless that is empty.
func (v *verb) entry(g *global, file string) (text, to string, err error) {
	if g.config, err = config.Find(g.config, g.profile); err == nil {
		text, to, err = v.snippet(v.args[0])
	}
	if err != nil {
		err = usage(err)
	}
	return text, cmp.Or(file, to), err
}

// server is this program with a configuration, as a client starts it.
func server(config string) (settings.Server, error) {
	exe, err := os.Executable()
	return settings.Server{Command: exe, Args: []string{"--config", config, "serve"}}, err
}

// snippet returns a client's entry for the configuration of this run, and the file for it.
func (v *verb) snippet(client string) (text, file string, err error) {
	s, err := server(v.config)
	if err != nil {
		return "", "", err
	}
	return settings.Snippet(client, s)
}

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
