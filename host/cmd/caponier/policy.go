package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/policy/replay"
	"github.com/spf13/cobra"
)

// onSite is a subcommand that makes a report on a site's folder. The second result of do is the
// exit code.
func onSite[T any](g *global, use, short string,
	do func(context.Context, string) (T, int, error), text func(io.Writer, T)) *cobra.Command {
	return &cobra.Command{
		Use: use + " [DIR]", Short: short, Args: cobra.MaximumNArgs(1),
		RunE: g.does(func(v *verb) error {
			site, err := g.site(strings.Join(v.args, ""))
			if err != nil {
				return err
			}
			report, code, err := do(v.ctx, site)
			if err != nil {
				return err
			}
			return v.verdict(code != exitDone, code, report,
				func(w io.Writer) { text(w, report) })
		}),
	}
}

func policyCheck(g *global) *cobra.Command {
	return onSite(g, "check",
		"Load the site's policies as serve would: compile, lint, schemas, tests",
		func(ctx context.Context, dir string) (load.Report, int, error) {
			r, err := load.Check(ctx, dir, g.inventory())
			return r, exitDone, err
		},
		func(w io.Writer, r load.Report) {
			for _, warning := range r.Warnings {
				fmt.Fprintln(w, "warning:", warning)
			}
			fmt.Fprintf(w, "fit to decide, as revision %s: %d rules of the site, %d tests of "+
				"them passed\n", r.Revision, r.Rules, r.Tests)
		})
}

func policyTest(g *global) *cobra.Command {
	return onSite(g, "test",
		"Run the tests of a site, and say which of its rules they saw (exit 1 when one fails)",
		func(ctx context.Context, dir string) (load.TestReport, int, error) {
			r, err := load.Test(ctx, dir, g.inventory())
			return r, min(r.Failed, exitFailed), err
		}, printTests)
}

func printTests(w io.Writer, r load.TestReport) {
	for _, t := range r.Tests {
		if !t.Passed {
			fmt.Fprintf(w, "FAIL  %s  %s\n%s", t.Name, t.Where, t.Output)
		}
	}
	for _, rule := range r.Rules {
		what := rule.Rule
		if rule.ID != "" {
			what += " " + strconv.Quote(rule.ID)
		}
		if !rule.Held {
			fmt.Fprintf(w, "never held in a test: %s  %s\n", what, rule.Where)
		}
		if len(rule.Missed) > 0 {
			fmt.Fprintf(w, "not covered of %s: %s\n", what, strings.Join(rule.Missed, ", "))
		}
	}
	rules := "the site has no rules"
	if len(r.Rules) > 0 {
		rules = fmt.Sprintf("%d rules of the site, coverage %.1f %%", len(r.Rules), r.Coverage)
	}
	fmt.Fprintf(w, "%d tests, %d failed; %s\n", len(r.Tests), r.Failed, rules)
}

func policyEval(g *global) *cobra.Command {
	var site string
	cmd := &cobra.Command{
		Use: "eval FILE",
		Short: "Decide a hypothetical call or operation: an input document as the journal holds " +
			"them (- for standard input; exit 3 when refused)",
		Args: cobra.ExactArgs(1),
		RunE: g.does(func(v *verb) error {
			dir, err := g.site(site)
			if err != nil {
				return err
			}
			in := v.in
			if v.args[0] != "-" {
				f, err := os.Open(v.args[0])
				if err != nil {
					return usage(err)
				}
				defer f.Close()
				in = f
			}
			data, err := io.ReadAll(io.LimitReader(in, 4<<20))
			if err != nil {
				return err
			}
			d, err := replay.Eval(v.ctx, dir, data)
			if err != nil {
				return err
			}
			return v.verdict(!d.Allow, exitRefused, map[string]any{"allow": d.Allow,
				"tier":   d.Tier.String(),
				"failed": d.Failed, "deny": d.Denied, "needs_approval": d.NeedsApproval,
				"revision": d.Revision}, func(w io.Writer) {
				replay.Print(w, d)
			})
		}),
	}
	cmd.Flags().StringVar(&site, "site", "", "the site's `DIR` (default from the configuration)")
	return cmd
}

func policyGrammar(g *global) *cobra.Command {
	var site string
	cmd := &cobra.Command{
		Use: "grammar [WORD...]",
		Short: "List the commands that policy knows: programs, sub-commands, options, operands, " +
			"tier",
		Long: "List the commands that policy knows, or with WORD, such as zpool or \"pct " +
			"status\", what they take. A role still has to grant them, by name or by group.",
		RunE: g.does(func(v *verb) error {
			dir, err := g.site(site)
			if err != nil {
				return err
			}
			word := strings.Join(v.args, " ")
			list, err := load.Grammar(v.ctx, dir, word)
			if err == nil && len(list) == 0 {
				err = fmt.Errorf("policy knows no command %q: `caponier policy grammar` lists "+
					"all; a site adds programs under binaries in data.yaml", word)
			}
			if err != nil {
				return err
			}
			return v.print(list, func(w io.Writer) {
				for _, c := range list {
					c.Print(w, word != "")
				}
			})
		}),
	}
	cmd.Flags().StringVar(&site, "site", "", "the site's `DIR` (default from the configuration)")
	return cmd
}
