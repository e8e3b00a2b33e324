package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/user"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caponier-mcp/caponier/host/freeze"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/spf13/cobra"
)

// scope is what freeze and thaw are about: everything, or one principal, node or tool.
type scope struct{ principal, node, tool string }

func (s *scope) flags(cmd *cobra.Command, verb string) {
	cmd.Flags().StringVar(&s.principal, "principal", "", verb+" only this `PRINCIPAL`")
	cmd.Flags().StringVar(&s.node, "node", "", verb+" only this `NODE`")
	cmd.Flags().StringVar(&s.tool, "tool", "", verb+" only this `TOOL`")
	cmd.MarkFlagsMutuallyExclusive("principal", "node", "tool")
}

// of returns the list of freezes and what the flags name. A node or tool that does not exist is an
// error: a freeze of a misspelt name would freeze nothing.
func (s scope) of(ctx context.Context, g *global) (l freeze.List, z freeze.Freeze, err error) {
	c, err := g.load()
	if err != nil {
		return l, z, err
	}
	l = freeze.In(c.Store.Dir)
	switch {
	case s.principal != "":
		return l, freeze.Freeze{Kind: "principal", Name: s.principal}, nil
	case s.node != "":
		known := func(n remote.NodeOptions) bool { return n.Name == s.node }
		if !slices.ContainsFunc(c.Remote.Nodes, known) {
			return l, z, fmt.Errorf("%s: no node %q in [[remote.nodes]]: there are %s", c.File,
				s.node,
				strings.Join(c.NodeNames(), ", "))
		}
		return l, freeze.Freeze{Kind: "node", Name: s.node}, nil
	case s.tool != "":
		h, err := open(ctx, g, wantTools)
		if err != nil {
			return l, z, err
		}
		defer h.Close()
		if h.tool(s.tool) == nil {
			return l, z, h.noTool(s.tool)
		}
		return l, freeze.Freeze{Kind: "tool", Name: s.tool}, nil
	}
	return l, freeze.Freeze{Kind: "all"}, nil
}

func freezeCommand(g *global) *cobra.Command {
	var s scope
	var reason string
	cmd := &cobra.Command{
		Use:   "freeze",
		Short: "Refuse every call and operation: of everything, or of one principal, node or tool",
		Args:  cobra.NoArgs,
		Long: "Refuse every call and every further operation, in all processes that share the " +
			"state\n" +
			"directory, from their next decision on. A command that already runs on a node is " +
			"not\n" +
			"stopped; the next operation of the same call is refused. `caponier thaw` ends a " +
			"freeze.",
		Example: "  caponier freeze --reason 'looking into what agent-a did'\n" +
			"  caponier freeze --node pve2\n  caponier freeze list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, z, err := s.of(cmd.Context(), g)
			if err != nil {
				return err
			}
			z.By, z.Reason, z.Since = "?", reason, time.Now().UTC().Truncate(time.Second)
			if u, err := user.Current(); err == nil {
				z.By = u.Username
			}
			if err := l.Add(z); err != nil {
				return failed(fmt.Errorf("freezing %s: %w", z, err))
			}
			return failed(printFreezes(cmd.OutOrStdout(), l, g.json))
		},
	}
	s.flags(cmd, "freeze")
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` that refused callers and operators see")
	cmd.AddCommand(&cobra.Command{
		Use: "list", Short: "List what is frozen", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.load()
			if err != nil {
				return err
			}
			return failed(printFreezes(cmd.OutOrStdout(), freeze.In(c.Store.Dir), g.json))
		},
	})
	return cmd
}

func printFreezes(w io.Writer, l freeze.List, asJSON bool) error {
	all, err := l.All()
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(w).Encode(all)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, "nothing is frozen")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FROZEN\tBY\tSINCE\tREASON")
	for _, z := range all {
		fmt.Fprintf(t, "%s\t%q\t%s\t%q\n", z, z.By, z.Since.Format(time.RFC3339), z.Reason)
	}
	return t.Flush()
}

func thawCommand(g *global) *cobra.Command {
	var s scope
	cmd := &cobra.Command{
		Use:   "thaw",
		Short: "End a freeze: the one of everything, or the one of a principal, node or tool",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, z, err := s.of(cmd.Context(), g)
			if err != nil {
				return err
			}
			was, err := l.Remove(z.Kind, z.Name)
			if err != nil {
				return failed(fmt.Errorf("thawing %s: %w", z, err))
			}
			still, err := l.All()
			switch {
			case err != nil:
				return failed(err)
			case !was:
				return failed(notFrozen(z, still))
			case g.json:
				return failed(json.NewEncoder(cmd.OutOrStdout()).Encode(still))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "thawed %s; other freezes: %d\n", z, len(still))
			return nil
		},
	}
	s.flags(cmd, "thaw")
	return cmd
}

// notFrozen is the error of thawing z; it names the commands that thaw what is frozen.
func notFrozen(z freeze.Freeze, still []freeze.Freeze) error {
	if len(still) == 0 {
		return fmt.Errorf("%s is not frozen; nothing is", z)
	}
	var thaw []string
	for _, f := range still {
		flag := ""
		if f.Kind != "all" {
			flag = fmt.Sprintf(" --%s %s", f.Kind, plaintext.Show(f.Name))
		}
		thaw = append(thaw, "caponier thaw"+flag)
	}
	return fmt.Errorf("%s is not frozen; to end the freezes that there are: %s", z,
		strings.Join(thaw, "; "))
}
