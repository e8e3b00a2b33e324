package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/caponier-mcp/caponier/client/settings"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/spf13/cobra"
)

func clientCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "client", Short: "Tell MCP clients how to start this program"}
	cmd.AddCommand(clientAdd(g), clientRemove(g))
	return cmd
}

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
