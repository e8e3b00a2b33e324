package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/caponier-mcp/caponier/host/identity"
	"github.com/spf13/cobra"
)

func tokenCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "token",
		Short: "Make, list and revoke bearer tokens of HTTP callers ([identity] tokens)"}
	cmd.AddCommand(tokenNew(g), tokenList(g), tokenRevoke(g))
	return cmd
}

func (g *global) tokens() (*identity.Tokens, error) {
	c, err := g.load()
	if err != nil {
		return nil, err
	}
	if c.Identity.Tokens == "" {
		return nil, fmt.Errorf("%s: [identity] tokens names no file", c.File)
	}
	return &identity.Tokens{Path: c.Identity.Tokens}, nil
}

// listed refuses a principal that identity would not know: its token would never work.
func (g *global) listed(id string) error {
	c, err := g.load()
	if err != nil {
		return err
	}
	for _, p := range c.Identity.Principals {
		if p.ID == id {
			return nil
		}
	}
	return fmt.Errorf(
		"%s: %q is not in [[identity.principals]]: add it there, and say in "+
			"policies/site/data.yaml what it may do",
		c.File, id)
}

func tokenNew(g *global) *cobra.Command {
	var roles []string
	var cidr string
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use:   "new PRINCIPAL",
		Short: "Make a token and show it, this once",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := g.tokens()
			if err != nil {
				return err
			}
			if err := g.listed(args[0]); err != nil {
				return err
			}
			secret, kept, err := t.New(args[0], roles, cidr, lifetime)
			if err != nil {
				return failed(err)
			}
			if g.json {
				return json.NewEncoder(cmd.OutOrStdout()).
					Encode(map[string]any{"token": secret, "prefix": kept.Prefix,
						"principal": kept.Principal, "expires": kept.Expires})
			}
			fmt.Fprintln(cmd.OutOrStdout(), secret)
			fmt.Fprintf(cmd.ErrOrStderr(),
				"for %s until %s; it is not kept and cannot be shown again. Revoke it with: "+
					"caponier token revoke %s\n",
				kept.Principal, kept.Expires.Format(time.RFC3339), kept.Prefix)
			return nil
		},
	}
	cmd.Flags().
		StringSliceVar(&roles, "roles", nil, "only these of the principal's `ROLES`, with commas "+
			"between")
	cmd.Flags().StringVar(&cidr, "cidr", "", "only from this `NETWORK`, such as 192.0.2.0/24")
	cmd.Flags().DurationVar(&lifetime, "lifetime", 90*24*time.Hour, "how long it is valid")
	return cmd
}

func tokenList(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the tokens, never their secrets", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := g.tokens()
			if err != nil {
				return err
			}
			all, err := t.List()
			if err != nil {
				return failed(err)
			}
			if g.json {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(all)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "PREFIX\tPRINCIPAL\tSTATE\tEXPIRES\tLAST USED\tFROM")
			for _, k := range all {
				state := "valid"
				switch {
				case !k.Revoked.IsZero():
					state = "revoked"
				case time.Now().After(k.Expires):
					state = "expired"
				}
				used := "never"
				if !k.LastUsed.IsZero() {
					used = k.LastUsed.Format(time.RFC3339)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", k.Prefix, k.Principal, state,
					k.Expires.Format(time.RFC3339), used, k.CIDR)
			}
			return w.Flush()
		},
	}
}

func tokenRevoke(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke PREFIX",
		Short: "Make a token worthless, from the next request on",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := g.tokens()
			if err != nil {
				return err
			}
			return failed(t.Revoke(args[0]))
		},
	}
}
