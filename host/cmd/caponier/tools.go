package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/spf13/cobra"
)

func toolsCommand(g *global) *cobra.Command {
	var checksum bool
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "List the tools of the lock as this principal may see them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := open(cmd.Context(), g, wantTools)
			if err != nil {
				return err
			}
			defer h.Close()
			if checksum {
				if g.json {
					return json.NewEncoder(cmd.OutOrStdout()).
						Encode(map[string]string{"checksum": h.lock.Checksum()})
				}
				_, err := fmt.Fprintln(cmd.OutOrStdout(), h.lock.Checksum())
				return err
			}
			return h.listTools(cmd.Context(), cmd.OutOrStdout(), g.json)
		},
	}
	g.narrowing(cmd)
	cmd.Flags().
		BoolVar(&checksum, "checksum", false, "print a checksum of the whole lock, to pin it "+
			"elsewhere")
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
	Imports     []string        `json:"imports"`
	Commands    []string        `json:"commands"`
	BudgetMS    int64           `json:"budget_ms"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// listTools prints the tools of the lock as the caller of the configuration sees them.
func (h *host) listTools(ctx context.Context, out io.Writer, asJSON bool) error {
	principal, err := h.cfg.Caller()
	if err != nil {
		return err
	}
	rows := []toolRow{}
	for _, t := range h.tools {
		tier := h.tier(ctx, principal, t)
		rows = append(rows, toolRow{t.Name, t.Plugin.Name, tier.String(),
			h.door.Visible(ctx, principal, "cli", t, gate.Targets{}), h.hidden(t), t.Title,
			t.Description, t.Runs, t.Imports, t.Commands, t.Budget.Milliseconds(), t.InputSchema})
	}
	if asJSON {
		return json.NewEncoder(out).Encode(rows)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOOL\tTIER\tPLUGIN\tRUNS ON THE NODE")
	withheld := 0
	for _, r := range rows {
		tier := r.Tier
		if r.Withheld != "" {
			withheld++
			continue
		}
		if !r.Visible {
			tier = "(not for " + principal.ID + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Name, tier, r.Plugin,
			strings.ReplaceAll(r.Runs, "\n", " "))
	}
	if err := w.Flush(); err != nil || withheld == 0 {
		return err
	}
	_, err = fmt.Fprintf(out, "%d more are not offered; --json says why.\n", withheld)
	return err
}
