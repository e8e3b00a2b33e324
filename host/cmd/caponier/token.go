package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/identity"
	"github.com/spf13/cobra"
)

// tokens runs do with the tokens: those of the file, or of all hosts.
func (g *global) tokens(do func(*identity.Tokens, *config.Config) error) error {
	c, err := g.load()
	switch {
	case err != nil:
		return err
	case c.Identity.InStore:
		return withShared(c, func(s state) error {
			return do(&identity.Tokens{Kept: s.kept()}, c)
		})
	case c.Identity.Tokens == "":
		return usage(fmt.Errorf("%s: [identity] tokens names no file", c.File))
	}
	return do(&identity.Tokens{Path: c.Identity.Tokens}, c)
}

// withTokens is does with the tokens.
func (g *global) withTokens(
	do func(*verb, *identity.Tokens, *config.Config) error,
) func(*cobra.Command, []string) error {
	return g.does(func(v *verb) error {
		return g.tokens(func(t *identity.Tokens, c *config.Config) error { return do(v, t, c) })
	})
}

func tokenNew(g *global) *cobra.Command {
	var roles []string
	var cidr string
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use:   "new PRINCIPAL",
		Short: "Make a token and show it. It cannot be shown again",
		Args:  cobra.ExactArgs(1),
		RunE: g.withTokens(func(v *verb, t *identity.Tokens, c *config.Config) error {
			who := v.args[0]
			// the token of a principal that identity does not know would never work
			is := func(p identity.Principal) bool { return p.ID == who }
			if !slices.ContainsFunc(c.Identity.Principals, is) {
				return usage(fmt.Errorf("%s: %q is not in [[identity.principals]]: add it there, "+
					"and grant it roles in policies/site/data.yaml", c.File, who))
			}
			secret, kept, err := t.New(who, roles, cidr, lifetime)
			if err != nil {
				return err
			}
			if !g.json {
				fmt.Fprintf(v.say, "for %s until %s; it is not kept and cannot be shown again. "+
					"Revoke it with: caponier token revoke %s\n", kept.Principal,
					kept.Expires.Format(time.RFC3339), kept.Prefix)
			}
			return v.print(map[string]any{"token": secret, "prefix": kept.Prefix,
				"principal": kept.Principal, "expires": kept.Expires},
				func(w io.Writer) { fmt.Fprintln(w, secret) })
		}),
	}
	f := cmd.Flags()
	f.StringSliceVar(&roles, "roles", nil,
		"only these `ROLES` of the principal, separated by commas")
	f.StringVar(&cidr, "cidr", "", "accept it only from this `NETWORK`, such as 192.0.2.0/24")
	f.DurationVar(&lifetime, "lifetime", 90*24*time.Hour, "the `TIME` for which it is valid")
	return cmd
}

func tokenList(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the tokens, without their secrets", Args: cobra.NoArgs,
		RunE: g.withTokens(func(v *verb, t *identity.Tokens, _ *config.Config) error {
			all, err := t.List()
			if err != nil {
				return err
			}
			return list(v, all, "PREFIX|PRINCIPAL|STATE|EXPIRES|LAST USED|FROM", tokenRow)
		}),
	}
}

func tokenRow(k identity.Token) []string {
	state, used := "valid", "never"
	switch {
	case !k.Revoked.IsZero():
		state = "revoked"
	case time.Now().After(k.Expires):
		state = "expired"
	}
	if !k.LastUsed.IsZero() {
		used = k.LastUsed.Format(time.RFC3339)
	}
	return []string{k.Prefix, k.Principal, state, k.Expires.Format(time.RFC3339), used, k.CIDR}
}

func tokenRevoke(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke PREFIX",
		Short: "Revoke a token. It is refused from the next request on",
		Args:  cobra.ExactArgs(1),
		RunE: g.withTokens(func(v *verb, t *identity.Tokens, _ *config.Config) error {
			return t.Revoke(v.args[0])
		}),
	}
}
