package main

import (
	"fmt"
	"io"
	"os/user"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/freeze"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/spf13/cobra"
)

// scope is what freeze and thaw are about: everything, or one principal, node, tool or module.
type scope struct{ principal, node, tool, plugin string }

func (s *scope) flags(cmd *cobra.Command, verb string) {
	cmd.Flags().StringVar(&s.principal, "principal", "", verb+" only this `PRINCIPAL`")
	cmd.Flags().StringVar(&s.node, "node", "", verb+" only this `NODE`")
	cmd.Flags().StringVar(&s.tool, "tool", "", verb+" only this `TOOL`")
	cmd.MarkFlagsMutuallyExclusive("principal", "node", "tool")
}

// of returns the configuration and what the flags name. A node or tool that does not exist is an
// error: a freeze of a misspelt name would freeze nothing.
func (s scope) of(g *global) (c *config.Config, z freeze.Freeze, err error) {
	if c, err = g.load(); err != nil {
		return c, z, err
	}
	z, err = s.in(c)
	return c, z, err
}

func (s scope) in(c *config.Config) (z freeze.Freeze, err error) {
	switch {
	case s.plugin != "":
		return freeze.Freeze{Kind: "plugin", Name: s.plugin}, nil
	case s.principal != "":
		return freeze.Freeze{Kind: "principal", Name: s.principal}, nil
	case s.node != "":
		if names := c.NodeNames(); !slices.Contains(names, s.node) {
			return z, usage(fmt.Errorf("%s: no node %q in [[remote.nodes]]: there are %s",
				c.File, s.node, strings.Join(names, ", ")))
		}
		return freeze.Freeze{Kind: "node", Name: s.node}, nil
	case s.tool != "":
		lock, err := plugin.Load(c.Plugin.Lock)
		if err == nil {
			_, err = lock.Tool(c.Plugin, s.tool)
		}
		if err != nil {
			return z, usage(err)
		}
		return freeze.Freeze{Kind: "tool", Name: s.tool}, nil
	}
	return freeze.Freeze{Kind: "all"}, nil
}

// stranger says that a frozen principal is nobody whom this configuration lets in, "" for others.
func stranger(c *config.Config, z freeze.Freeze) string {
	id := c.Identity
	known := []string{c.CLI.Principal, id.HTTP}
	for _, p := range id.Principals {
		known = append(known, p.ID)
	}
	for _, p := range id.OIDC.Callers {
		known = append(known, p.Principal)
	}
	anybody := id.OIDC.Issuer != "" && len(id.OIDC.Callers) == 0
	if z.Kind != "principal" || anybody || slices.Contains(known, z.Name) {
		return ""
	}
	return fmt.Sprintf("%s names no principal %q: it is frozen all the same; is it spelt so?",
		c.File, z.Name)
}

func freezeCommand(g *global) *cobra.Command {
	var s scope
	var reason string
	cmd := &cobra.Command{
		Use:   "freeze",
		Short: "Refuse every call and operation: of everything, or of one principal, node or tool",
		Args:  cobra.NoArgs,
		Long: "Refuse every call and every further operation, in all processes that share the " +
			"state\ndirectory or [store] url, from their next decision on. A command that runs " +
			"already\non a node is not stopped; the next operation of the same call is refused. " +
			"`caponier thaw`\nends a freeze.",
		Example: "  caponier freeze --reason 'looking into what agent-a did'\n" +
			"  caponier freeze --node pve2\n  caponier freeze list",
		RunE: g.does(func(v *verb) error {
			c, z, err := s.of(g)
			if err != nil {
				return err
			}
			return withShared(c, func(s state) error {
				if err := addFreeze(s.freezes(c), z, account(), reason); err != nil {
					return err
				}
				if odd := stranger(c, z); odd != "" {
					fmt.Fprintln(v.say, "caponier:", odd)
				}
				return v.freezes(s.freezes(c))
			})
		}),
	}
	s.flags(cmd, "freeze")
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` that refused callers and operators see")
	cmd.AddCommand(&cobra.Command{
		Use: "list", Short: "List what is frozen", Args: cobra.NoArgs,
		RunE: g.with(func(v *verb, c *config.Config) error {
			return withShared(c, func(s state) error { return v.freezes(s.freezes(c)) })
		}),
	})
	return cmd
}

// account is the name of who runs this.
func account() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "?"
}

// addFreeze puts a freeze into the list.
func addFreeze(l freeze.List, z freeze.Freeze, by, reason string) error {
	z.By, z.Reason, z.Since = by, reason, time.Now().UTC().Truncate(time.Second)
	if err := l.Add(z); err != nil {
		return fmt.Errorf("freezing %s: %w", z, err)
	}
	return nil
}

// freezes prints the list.
func (v *verb) freezes(l freeze.List) error {
	all, err := l.All(v.ctx)
	if err != nil {
		return err
	}
	return v.print(all, func(w io.Writer) {
		if len(all) == 0 {
			fmt.Fprintln(w, "nothing is frozen")
			return
		}
		table(w, all, "FROZEN|BY|SINCE|REASON", func(z freeze.Freeze) []string {
			return []string{z.String(), fmt.Sprintf("%q", z.By), z.Since.Format(time.RFC3339),
				fmt.Sprintf("%q", z.Reason)}
		})
	})
}

func thawCommand(g *global) *cobra.Command {
	var s scope
	cmd := &cobra.Command{
		Use:   "thaw",
		Short: "End a freeze: of everything, or of one principal, node, tool or revoked module",
		Args:  cobra.NoArgs,
		RunE: g.does(func(v *verb) error {
			c, z, err := s.of(g)
			if err != nil {
				return err
			}
			return withShared(c, func(s state) error { return v.thaw(s.freezes(c), z) })
		}),
	}
	s.flags(cmd, "thaw")
	cmd.Flags().StringVar(&s.plugin, "plugin", "", "let the module with this `DIGEST` run again")
	cmd.MarkFlagsMutuallyExclusive("principal", "node", "tool", "plugin")
	return cmd
}

func (v *verb) thaw(l freeze.List, z freeze.Freeze) error {
	was, err := l.Remove(z.Kind, z.Name)
	if err != nil {
		return fmt.Errorf("thawing %s: %w", z, err)
	}
	still, err := l.All(v.ctx)
	if err == nil && !was {
		err = notFrozen(z, still)
	}
	if err != nil {
		return err
	}
	return v.print(still, func(w io.Writer) {
		fmt.Fprintf(w, "thawed %s; other freezes: %d\n", z, len(still))
	})
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

var moduleDigest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// pluginRevoke records that a module must not run. The record is in the state directory, with the
// freezes, and not in the lock: every process reads it at its next decision, it stays when the same
// module is locked again, and no reviewed file has to change while something is wrong.
func pluginRevoke(g *global) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "revoke DIGEST",
		Short: "Stop a module now, in all processes that share the state directory, whatever " +
			"the lock says",
		Long: "Refuses every call of the module with this digest (or of the plugin that the lock " +
			"has under\nthis name), and every further operation of its running calls, in all " +
			"processes that share\nthe state directory, from their next decision on. It holds " +
			"also for a lock that lists the\nmodule later. `caponier thaw --plugin DIGEST` ends " +
			"it.",
		Args: cobra.ExactArgs(1),
		RunE: g.with(func(v *verb, c *config.Config) error {
			lock, err := plugin.Load(c.Plugin.Lock)
			digest, locked := v.args[0], ""
			if err == nil {
				for _, e := range lock.Plugins() {
					if v.args[0] == e.Name || v.args[0] == e.Digest {
						digest, locked = e.Digest, e.Name
					}
				}
			}
			if !moduleDigest.MatchString(digest) {
				return usage(fmt.Errorf("%q is neither a digest (sha256: and 64 hexadecimal "+
					"digits; `caponier check` lists them) nor a plugin in %s", digest,
					c.Plugin.Lock))
			}
			z := freeze.Freeze{Kind: "plugin", Name: digest}
			err = withShared(c, func(s state) error {
				return addFreeze(s.freezes(c), z, account(), reason)
			})
			if err != nil {
				return err
			}
			return v.print(map[string]string{"digest": digest, "plugin": locked},
				func(w io.Writer) {
					fmt.Fprintf(w, "the module %s is revoked\n", digest)
					if locked != "" {
						fmt.Fprintf(w, "%s still lists it, as plugin %s\n", c.Plugin.Lock, locked)
					}
				})
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` that refused callers and operators see")
	return cmd
}
