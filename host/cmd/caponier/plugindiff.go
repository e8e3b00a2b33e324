package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/spf13/cobra"
)

// change is one difference between two versions of a plugin. Wider means that more is possible than
// before, that policy sees less, or that a client would ask its user less often: a reviewer must
// want
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
		Use: "diff OLD NEW",
		Short: "Show what an upgrade newly imports, acts on, accepts or claims; exit 3 when it " +
			"widens",
		Args: cobra.ExactArgs(2),
		Long: "OLD and NEW are locks or modules (*.wasm). When NEW is a module, only the plugin " +
			"of its\n" +
			"name is compared. A line marked ! widens: more is possible than before, policy " +
			"sees\n" +
			"less, or a client would ask its user less often.",
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
				gone := func(name string, _ plugin.Entry) bool { _, has := now[name]; return !has }
				maps.DeleteFunc(old, gone)
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
	for _, c := range changes {
		mark := map[bool]string{true: "!", false: " "}[c.Wider]
		at := strings.TrimSpace(c.Plugin + " " + c.Item)
		fmt.Fprintf(w, "%s %s: %s: %s → %s\n", mark, at, c.What, shown(c.Old), shown(c.New))
	}
	verdict := "nothing widens"
	if len(changes) == 0 {
		verdict = "nothing changes"
	} else if wider {
		verdict = "the lines marked ! widen what is possible, or hide something from policy or " +
			"the user"
	}
	_, err := fmt.Fprintln(w, verdict)
	return err
}

func shown(v any) string {
	text, err := json.Marshal(v)
	if err != nil || string(text) == "null" {
		return "(none)"
	}
	return string(text)
}

// compare lists the differences, plugin by plugin and tool by tool.
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
		case a.Digest != b.Digest && a.Version == b.Version:
			say("", "other code under the same version", a.Digest, b.Digest, false)
		case a.Version != b.Version:
			say("", "version", a.Version, b.Version, false)
		} // locks can differ in what they say of the same module, and that is what is served
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
				say(id, "is new", nil, map[string]any{"title": y.Title, "imports": y.Imports,
					"commands": y.Commands, "targets": y.TargetKinds, "runs": y.Runs}, true)
			default:
				compareTools(x, y, func(what string, x, y any, wider bool) {
					say(id, what, x, y,
						wider)
				})
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

func compareTools(a, b *gate.Tool, say notice) {
	sets(a.Imports, b.Imports, func(x, y any) { say("imports", x, y, y != nil) })
	sets(a.Commands, b.Commands, func(x, y any) { say("commands", x, y, y != nil) })
	differ := func(what string, x, y any, wider bool) {
		if !reflect.DeepEqual(x, y) {
			say(what, x, y, wider)
		}
	}
	// A client asks its user by the hints: a change means that the tool does more or admits less.
	differ("hint read_only", a.Hints.ReadOnly, b.Hints.ReadOnly, true)
	differ("hint destructive", a.Hints.Destructive, b.Hints.Destructive, true)
	differ("hint open_world", a.Hints.OpenWorld, b.Hints.OpenWorld, true)
	differ("hint idempotent", a.Hints.Idempotent, b.Hints.Idempotent, b.Hints.Idempotent)
	differ("budget", a.Budget.String(), b.Budget.String(), b.Budget > a.Budget)
	differ("uri", a.URI, b.URI, true)
	differ("title", a.Title, b.Title, false)
	differ("description", a.Description, b.Description, false)
	differ("runs", a.Runs, b.Runs, false)
	compareParams(a, b, say, differ)
	differ("output_schema", tree(a.OutputSchema), tree(b.OutputSchema), false) // it grants nothing
}

// compareParams compares arguments. A difference that is not known to narrow counts as wider, above
// all a changed target.
func compareParams(a, b *gate.Tool, say, differ notice) {
	old, now := byName(a.Params), byName(b.Params)
	oldRest, nowRest := tree(a.InputSchema), tree(b.InputSchema)
	for _, name := range union(old, now) {
		x, had := old[name]
		y, has := now[name]
		at, before, after := "argument "+name, property(oldRest, name), property(nowRest, name)
		if !had || !has {
			say(at, before, after, has || x.Target != "" || x.Confirm)
			continue
		}
		differ(at+": type", x.Type, y.Type, true)
		differ(at+": x-caponier-target", or(x.Target), or(y.Target), true)
		differ(at+": x-caponier-confirm", x.Confirm, y.Confirm, true)
		differ(at+": required", x.Required, y.Required, !y.Required)
		more := func(e string) bool { return !slices.Contains(x.Enum, e) }
		differ(at+": enum", list(x.Enum), list(y.Enum),
			x.Enum != nil && (y.Enum == nil || slices.ContainsFunc(y.Enum, more)))
		differ(at+": pattern", or(x.Pattern), or(y.Pattern), x.Pattern != "")
		differ(at+": default", x.Default, y.Default, true)
		differ(at+": minimum", or(x.Min), or(y.Min), x.Min != nil && (y.Min == nil ||
			*y.Min < *x.Min))
		differ(at+": maximum", or(x.Max), or(y.Max), x.Max != nil && (y.Max == nil ||
			*y.Max > *x.Max))
		differ(at+": maxLength", or(x.MaxLength), or(y.MaxLength),
			x.MaxLength > 0 && (y.MaxLength == 0 || y.MaxLength > x.MaxLength))
		differ(at+": title", x.Title, y.Title, false)
		differ(at+": description", x.Description, y.Description, false)
		for _, k := range strings.Fields("type x-caponier-target x-caponier-confirm enum pattern " +
			"default minimum maximum maxLength title description") {
			delete(before, k)
			delete(after, k)
		}
		differ(at+": other rules", before, after, true)
	}
	differ("$defs", oldRest["$defs"], nowRest["$defs"], true)
}

func byName(params []gate.Param) map[string]gate.Param {
	all := map[string]gate.Param{}
	for _, p := range params {
		all[p.Name] = p
	}
	return all
}

// tree decodes a schema of a checked lock; nil is an empty one.
func tree(raw json.RawMessage) map[string]any {
	v, _ := abi.Decode(raw, 1<<20)
	t, _ := v.(map[string]any)
	return t
}

func property(schema map[string]any, name string) map[string]any {
	all, _ := schema["properties"].(map[string]any)
	p, _ := all[name].(map[string]any)
	return p
}

// or returns nil for a zero value, and otherwise what a pointer points to.
func or[T comparable](v T) any {
	var zero T
	if p := reflect.ValueOf(v); v == zero {
		return nil
	} else if p.Kind() == reflect.Pointer {
		return p.Elem().Interface()
	}
	return v
}

func list(words []string) any {
	if words == nil {
		return nil
	}
	return words
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

func union[V any](a, b map[string]V) []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(all)
	return slices.Compact(all)
}
