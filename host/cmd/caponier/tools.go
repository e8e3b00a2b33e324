package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/spf13/cobra"
)

func toolsCommand(g *global) *cobra.Command {
	var checksum bool
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "List the tools of the lock as this principal may see them",
		Args:  cobra.NoArgs,
		RunE: g.with(func(v *verb, c *config.Config) error {
			lock, err := plugin.Load(c.Plugin.Lock)
			if err != nil {
				return usage(err)
			}
			if checksum {
				sum := lock.Checksum()
				return v.print(map[string]string{"checksum": sum},
					func(w io.Writer) { fmt.Fprintln(w, sum) })
			}
			return v.tools(c, lock)
		}),
	}
	g.narrowing(cmd)
	cmd.Flags().BoolVar(&checksum, "checksum", false,
		"print a checksum of the whole lock, to pin it elsewhere")
	for _, part := range []string{"toolsets", "tools", "exclude-tools", "read-only"} {
		cmd.MarkFlagsMutuallyExclusive("checksum", part) // it is of the whole lock
	}
	return cmd
}

// toolRow is one tool as `caponier tools --json` prints it.
type toolRow struct {
	Name        string          `json:"name"`
	Plugin      string          `json:"plugin"`
	Tier        string          `json:"tier"`
	Visible     bool            `json:"visible"`
	Withheld    string          `json:"withheld,omitempty"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Runs        string          `json:"runs"`
	AliasOf     string          `json:"alias_of,omitempty"`
	Imports     []string        `json:"imports"`
	Commands    []string        `json:"commands"`
	BudgetMS    int64           `json:"budget_ms"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// tools prints the tools of the lock as the caller of the configuration sees them.
func (v *verb) tools(c *config.Config, lock *plugin.Lock) error {
	hidden, err := hiddenReason(c, lock)
	if err != nil {
		return err
	}
	c.Policy.Inventory = load.Inventory{Tools: lock.Tools(), Nodes: c.Remote.Known()}
	site, err := load.New(v.ctx, c.Policy)
	if err != nil {
		return usage(err)
	}
	p, err := c.Caller()
	if err != nil {
		return usage(err)
	}
	all, now := []toolRow{}, terms.Mode{ReadOnly: c.ReadOnly}
	err = withShared(c, func(s state) error {
		now.Freezes = s.freezes(c).Mode(v.ctx)
		return nil
	})
	if err != nil {
		return err
	}
	for _, t := range lock.Tools() {
		q := visible(p, t)
		q.Mode = now
		d, err := site.Decide(v.ctx, q)
		why := hidden(t)
		r := toolRow{t.Name, t.Plugin.Name, d.Tier.String(), err == nil && d.Allow && why == "",
			why, t.Title, t.Description, t.Runs, t.AliasOf, t.Imports, t.Commands,
			t.Budget.Milliseconds(), t.InputSchema}
		all = append(all, r)
	}
	withheld := func(r toolRow) bool { return r.Withheld != "" }
	return v.print(all, func(w io.Writer) {
		offered := slices.DeleteFunc(slices.Clone(all), withheld)
		table(w, offered, "TOOL|TIER|PLUGIN|ALIAS OF|RUNS ON THE NODE", func(r toolRow) []string {
			if !r.Visible {
				r.Tier = "(not for " + p.ID + ")"
			}
			return []string{r.Name, r.Tier, r.Plugin, r.AliasOf,
				strings.ReplaceAll(r.Runs, "\n", " ")}
		})
		if n := len(all) - len(offered); n > 0 {
			fmt.Fprintf(w, "%d more are not offered; --json says why.\n", n)
		}
	})
}
