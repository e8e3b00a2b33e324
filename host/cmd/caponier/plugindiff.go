package main

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/spf13/cobra"
)

func pluginDiff(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "diff OLD NEW",
		Short: "Show what an upgrade newly imports, acts on, accepts or claims; exit 3 when it " +
			"widens",
		Args: cobra.ExactArgs(2),
		Long: "OLD and NEW are locks or modules (*.wasm). When NEW is a module, only the " +
			"plugin of its\nname is compared. A line marked ! widens: more is possible than " +
			"before, policy sees\nless, or a client would ask its user less often.",
		RunE: g.does(func(v *verb) error {
			old, err := entriesOf(v.ctx, v.args[0])
			if err != nil {
				return err
			}
			now, err := entriesOf(v.ctx, v.args[1])
			if err != nil {
				return err
			}
			if strings.HasSuffix(v.args[1], ".wasm") {
				gone := func(name string, _ plugin.Entry) bool { _, has := now[name]; return !has }
				maps.DeleteFunc(old, gone)
				for name, e := range old { // who signed it is asked when it is locked
					e.Signed = nil
					old[name] = e
				}
			}
			changes, err := plugin.Compare(old, now)
			if err != nil {
				return err
			}
			wider := slices.ContainsFunc(changes, func(c plugin.Change) bool { return c.Wider })
			return v.verdict(wider, exitRefused, map[string]any{"changes": changes, "wider": wider},
				func(w io.Writer) { plugin.PrintChanges(w, changes) })
		}),
	}
}

// entriesOf reads a lock, or describes a module, by plugin name.
func entriesOf(ctx context.Context, file string) (map[string]plugin.Entry, error) {
	all := map[string]plugin.Entry{}
	if strings.HasSuffix(file, ".wasm") {
		e, err := describe(ctx, file)
		all[e.Name] = e
		return all, err
	}
	lock, err := plugin.Load(file)
	if err != nil {
		return nil, err
	}
	for _, e := range lock.Plugins() {
		all[e.Name] = e
	}
	return all, nil
}
