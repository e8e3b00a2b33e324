package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/spf13/cobra"
)

// change is one difference between two versions of a plugin. Wider says that more is possible than
// before, that policy sees less, or that a client would ask its user less often: somebody must want
// that.
type change struct {
	Plugin string `json:"plugin"`
	Item   string `json:"item,omitempty"` // such as "tool stop_guest"
	What   string `json:"what"`
	Old    any    `json:"old"` // null: there was none
	New    any    `json:"new"`
	Wider  bool   `json:"wider"`
}

func pluginDiff(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "diff OLD NEW", Short: "Say what an upgrade newly imports, acts on, accepts or claims; exit 3 when it widens", Args: cobra.ExactArgs(2),
		Long: "OLD and NEW are locks or modules (*.wasm). When NEW is a module, only the plugin of its name is compared. A line marked ! widens: more is possible " +
			"than before, policy sees less, or a client would ask its user less often.",
		RunE: func(cmd *cobra.Command, args []string) error {
			old, err := entries(cmd.Context(), args[0])
			if err != nil {
				return failed(err)
			}
			now, err := entries(cmd.Context(), args[1])
			if err != nil {
				return failed(err)
			}
			if strings.HasSuffix(args[1], ".wasm") {
				maps.DeleteFunc(
					old,
					func(name string, _ plugin.Entry) bool { _, has := now[name]; return !has },
				)
			}
			changes, err := compare(old, now)
			if err != nil {
				return failed(err)
			}
			wider := slices.ContainsFunc(changes, func(c change) bool { return c.Wider })
			if err := showChanges(cmd.OutOrStdout(), changes, wider, g.json); err != nil {
				return failed(err)
			}
			if wider {
				return &exit{code: exitRefused}
			}
			return nil
		},
	}
}

// entries reads a lock, or describes a module, by plugin name.
func entries(ctx context.Context, file string) (map[string]plugin.Entry, error) {
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

func showChanges(w io.Writer, changes []change, wider, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(map[string]any{"changes": changes, "wider": wider})
	}
	if len(changes) == 0 {
		_, err := fmt.Fprintln(w, "nothing changes")
		return err
	}
	for _, c := range changes {
		mark := " "
		if c.Wider {
			mark = "!"
		}
		at := c.Plugin
		if c.Item != "" {
			at += " " + c.Item
		}
		fmt.Fprintf(w, "%s %s: %s: %s → %s\n", mark, at, c.What, shown(c.Old), shown(c.New))
	}
	verdict := "nothing widens"
	if wider {
		verdict = "the lines marked ! widen what is possible, or hide something from policy or from the user"
	}
	_, err := fmt.Fprintln(w, verdict)
	return err
}

func shown(v any) string {
	if v == nil {
		return "(none)"
	}
	text, err := abi.Encode(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// compare lists what is different, plugin by plugin and tool by tool.
func compare(old, now map[string]plugin.Entry) ([]change, error) {
	all := []change{}
	for _, name := range union(old, now) {
		a, had := old[name]
		b, has := now[name]
		say := func(item, what string, x, y any, wider bool) {
			all = append(all, change{name, item, what, x, y, wider})
		}
		switch {
		case !has:
			say("", "is gone", a.Version, nil, false)
			continue
		case !had:
			say("", "is new", nil, b.Version, true)
		case a.Digest == b.Digest:
			// what the locks say of it may differ all the same, and that is what is served
		case a.Version == b.Version:
			say("", "other code under the same version", a.Digest, b.Digest, false)
		default:
			say("", "version", a.Version, b.Version, false)
		}
		sets(a.Imports, b.Imports, func(x, y any) { say("", "module imports", x, y, y != nil) })
		before, err := items(a, had)
		if err != nil {
			return nil, err
		}
		after, err := items(b, true)
		if err != nil {
			return nil, err
		}
		for _, id := range union(before, after) {
			x, y := before[id], after[id]
			switch {
			case y == nil:
				say(id, "is gone", x.Title, nil, false)
			case x == nil:
				say(
					id,
					"is new",
					nil,
					map[string]any{
						"title":    y.Title,
						"imports":  list(y.Imports),
						"commands": list(y.Commands),
						"targets":  list(y.TargetKinds),
						"runs":     y.Runs,
					},
					true,
				)
			default:
				if err := tools(x, y, func(what string, x, y any, wider bool) { say(id, what, x, y, wider) }); err != nil {
					return nil, fmt.Errorf("plugin %s, %s: %w", name, id, err)
				}
			}
		}
	}
	return all, nil
}

func items(e plugin.Entry, there bool) (map[string]*gate.Tool, error) {
	found := map[string]*gate.Tool{}
	if !there {
		return found, nil
	}
	tools, err := e.Tools()
	for _, t := range tools {
		found[t.Kind+" "+t.Name] = t
	}
	return found, err
}

type notice func(what string, old, now any, wider bool)

func tools(a, b *gate.Tool, say notice) error {
	sets(a.Imports, b.Imports, func(x, y any) { say("imports", x, y, y != nil) })
	sets(a.Commands, b.Commands, func(x, y any) { say("commands", x, y, y != nil) })
	for _, h := range []struct {
		what     string
		old, now bool
		// when it changes: what it may do grows, or what it admits shrinks; a client asks its user
		// by these
		wider bool
	}{
		{"hint read_only", a.Hints.ReadOnly, b.Hints.ReadOnly, true},
		{"hint destructive", a.Hints.Destructive, b.Hints.Destructive, true},
		{"hint open_world", a.Hints.OpenWorld, b.Hints.OpenWorld, true},
		{"hint idempotent", a.Hints.Idempotent, b.Hints.Idempotent, b.Hints.Idempotent},
	} {
		if h.old != h.now {
			say(h.what, h.old, h.now, h.wider)
		}
	}
	if a.Budget != b.Budget {
		say("budget", a.Budget.String(), b.Budget.String(), b.Budget > a.Budget)
	}
	for _, text := range [][3]string{{"uri", a.URI, b.URI}, {"title", a.Title, b.Title}, {"description", a.Description, b.Description}, {"runs", a.Runs, b.Runs}} {
		if text[1] != text[2] {
			say(text[0], text[1], text[2], text[0] == "uri")
		}
	}
	in, err := trees(a.InputSchema, b.InputSchema)
	if err != nil {
		return fmt.Errorf("input_schema: %w", err)
	}
	schemas("argument", in[0], in[1], say)
	if a.OutputSchema == nil && b.OutputSchema == nil {
		return nil
	}
	out, err := trees(a.OutputSchema, b.OutputSchema)
	if err != nil {
		return fmt.Errorf("output_schema: %w", err)
	}
	// what comes back grants nothing
	schemas(
		"result",
		out[0],
		out[1],
		func(what string, x, y any, _ bool) { say(what, x, y, false) },
	)
	return nil
}

func trees(raws ...json.RawMessage) (all []map[string]any, err error) {
	for _, raw := range raws {
		tree := map[string]any{}
		if raw != nil {
			v, err := abi.Decode(raw, 1<<20)
			if err != nil {
				return nil, err
			}
			tree, _ = v.(map[string]any)
		}
		all = append(all, tree)
	}
	return all, nil
}

// schemas compares two schemas keyword by keyword. Whatever is not known to narrow counts as wider,
// above all a changed target mark.
func schemas(at string, a, b map[string]any, say notice) {
	for _, k := range union(a, b) {
		x, y := a[k], b[k]
		old, wasMap := x.(map[string]any)
		now, isMap := y.(map[string]any)
		switch {
		case shown(x) == shown(y):
		case (k == "properties" || k == "$defs") && (wasMap || x == nil) && (isMap || y == nil):
			for _, name := range union(old, now) {
				o, had := old[name].(map[string]any)
				n, has := now[name].(map[string]any)
				switch {
				case !had:
					say(at+" "+name, nil, n, true)
				case !has:
					say(
						at+" "+name,
						o,
						nil,
						o["x-caponier-target"] != nil || o["x-caponier-confirm"] != nil,
					)
				default:
					schemas(at+" "+name, o, n, say)
				}
			}
		case k == "items" && wasMap && isMap:
			schemas(at+" items", old, now, say)
		case k == "required" || k == "enum":
			words := func(v any) (texts []string) {
				values, _ := v.([]any)
				for _, e := range values {
					texts = append(texts, shown(e))
				}
				return texts
			}
			wider := x != nil && y == nil
			sets(words(x), words(y), func(gone, added any) {
				wider = wider ||
					x != nil && (k == "enum" && added != nil || k == "required" && gone != nil)
			})
			say(at+": "+k, x, y, wider)
		default:
			say(at+": "+k, x, y, loosens(k, x, y))
		}
	}
}

// loosens says whether a changed keyword accepts more than before, or may.
func loosens(keyword string, old, now any) bool {
	up := 1.0
	switch keyword {
	case "title", "description", "examples", "deprecated":
		return false
	case "minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties":
		up = -1
		fallthrough
	case "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties":
		x, had := num(old)
		y, has := num(now)
		return had && (!has || y*up > x*up)
	case "pattern", "const", "format", "multipleOf", "uniqueItems":
		return old != nil // a new one narrows; two different ones are beyond comparing
	}
	return true
}

func num(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// sets reports each word of one list alone: as old when it is gone, as new when it was added.
func sets(old, now []string, say func(gone, added any)) {
	for _, w := range old {
		if !slices.Contains(now, w) {
			say(w, nil)
		}
	}
	for _, w := range now {
		if !slices.Contains(old, w) {
			say(nil, w)
		}
	}
}

func list(words []string) []any {
	values := []any{}
	for _, w := range words {
		values = append(values, w)
	}
	return values
}

func union[V any](a, b map[string]V) []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(all)
	return slices.Compact(all)
}
