package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/policy/replay"
	"github.com/spf13/cobra"
)

func policyCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Check, test and try the policies"}
	cmd.AddCommand(policyCheck(g), policyTest(g), policyEval(g), policyExplain(g), policyReplay(g),
		policyGrammar(g))
	return cmd
}

// siteArg is the site's folder: the argument, or what the configuration says.
func siteArg(g *global, args []string) (string, error) {
	if len(args) == 1 {
		return args[0], nil
	}
	c, err := g.load()
	if err != nil {
		return "", fmt.Errorf("name the folder of the site's policies, or a configuration: %w", err)
	}
	return c.Policy.Site, nil
}

// onSite is a subcommand that works on a site's folder and prints a report.
func onSite[T any](g *global, use, short string, do func(context.Context, string) (T, error),
	print func(io.Writer, T) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " [DIR]", Short: short, Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			site, err := siteArg(g, args)
			if err != nil {
				return err
			}
			report, err := do(cmd.Context(), site)
			if err != nil {
				return failed(err)
			}
			if g.json {
				if err := json.NewEncoder(cmd.OutOrStdout()).Encode(report); err != nil {
					return failed(err)
				}
				return print(io.Discard, report)
			}
			return print(cmd.OutOrStdout(), report)
		},
	}
}

func policyCheck(g *global) *cobra.Command {
	return onSite(
		g,
		"check",
		"Load the site's policies as serve would: compile, lint, schemas, tests",
		func(ctx context.Context, dir string) (load.Report, error) {
			return load.Check(ctx, dir, g.inventory())
		},
		func(w io.Writer, r load.Report) error {
			for _, warning := range r.Warnings {
				fmt.Fprintln(w, "warning:", warning)
			}
			_, err := fmt.Fprintf(w,
				"fit to decide, as revision %s: %d rules of the site, %d tests of them passed\n",
				r.Revision, r.Rules, r.Tests)
			return err
		},
	)
}

// inventory returns what the configuration knows of tools and nodes, or nothing where there is no
// configuration: a site's folder can be checked without one.
func (g *global) inventory() (inv load.Inventory) {
	c, err := g.load()
	if err != nil {
		return inv
	}
	inv.Nodes = c.NodeNames()
	if lock, err := plugin.Load(c.Plugin.Lock); err == nil {
		inv.Tools = lock.Tools()
	}
	return inv
}

func policyTest(g *global) *cobra.Command {
	return onSite(
		g,
		"test",
		"Run the tests of core and site, with coverage (exit 1 when one fails)",
		load.Test,
		func(w io.Writer, r load.TestReport) error {
			for _, t := range r.Tests {
				if !t.Passed {
					fmt.Fprintf(w, "FAIL  %s  %s\n%s", t.Name, t.Where, t.Output)
				}
			}
			for _, place := range r.NotCovered {
				fmt.Fprintln(w, "not covered:", place)
			}
			fmt.Fprintf(w, "%d tests, %d failed; coverage of core %.1f %%, of site %.1f %%\n",
				len(r.Tests), r.Failed, r.CoreCoverage, r.SiteCoverage)
			if r.Failed > 0 {
				return &exit{code: exitFailed}
			}
			return nil
		},
	)
}

func policyEval(g *global) *cobra.Command {
	var site string
	cmd := &cobra.Command{
		Use: "eval FILE",
		Short: "Decide a hypothetical call or operation: an input document as the journal holds " +
			"them (- for standard input; exit 3 when refused)",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := siteArg(g, nonEmpty(site))
			if err != nil {
				return err
			}
			in := cmd.InOrStdin()
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			data, err := io.ReadAll(io.LimitReader(in, 4<<20))
			if err != nil {
				return err
			}
			d, err := replay.Eval(cmd.Context(), dir, data)
			if err != nil {
				return failed(err)
			}
			if g.json {
				err = json.NewEncoder(cmd.OutOrStdout()).
					Encode(map[string]any{"allow": d.Allow, "tier": d.Tier.String(),
						"failed": d.Failed, "deny": d.Denied, "needs_approval": d.NeedsApproval,
						"revision": d.Revision})
			} else {
				word := map[bool]string{true: "allowed", false: "refused"}[d.Allow]
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s at tier %s by revision %s\n", word,
					d.Tier, d.Revision)
				for _, r := range d.Denied {
					fmt.Fprintf(cmd.OutOrStdout(), "  %s: %s\n", r.ID, r.Msg)
				}
			}
			if err == nil && !d.Allow {
				return &exit{code: exitRefused}
			}
			return failed(err)
		},
	}
	cmd.Flags().StringVar(&site, "site", "", "the site's `DIR` (default from the configuration)")
	return cmd
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}
