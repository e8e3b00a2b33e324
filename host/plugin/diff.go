package plugin

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Change is one difference between two versions of a plugin. Wider means that more is possible than
// before, that policy sees less, or that a client would ask its user less often: a reviewer must
// want that.
type Change struct {
	Plugin string `json:"plugin"`
	Item   string `json:"item,omitempty"` // such as "tool stop_guest"
	What   string `json:"what"`
	Old    any    `json:"old"` // null: there was none
	New    any    `json:"new"`
	Wider  bool   `json:"wider"`
}

// part is a plugin, a tool, resource or prompt of it, or an argument of one of these.
type part struct {
	shown  any                 // all of it, for when it is new or gone
	guards bool                // policy or the user looks at it, so that losing it widens
	facts  map[string]any      // compared as wholes
	words  map[string][]string // lists, of which each word is compared alone
	parts  map[string]part
}

// Compare lists the differences, plugin by plugin and tool by tool.
func Compare(old, now map[string]Entry) ([]Change, error) {
	before, err := partsOf(old)
	if err != nil {
		return nil, err
	}
	after, err := partsOf(now)
	if err != nil {
		return nil, err
	}
	changes := []Change{}
	compareParts(before, after, nil, func(path []string, what string, x, y any, wider bool) {
		c := Change{Plugin: path[0], What: what, Old: x, New: y, Wider: wider}
		if len(path) > 1 {
			c.Item = path[1]
			c.What = strings.Join(append(path[2:], what), ": ")
		}
		changes = append(changes, c)
	})
	return changes, nil
}

// compareParts reports each difference between the parts with the names that lead to it.
func compareParts(old, now map[string]part, path []string,
	report func(path []string, what string, old, now any, wider bool)) {
	for _, name := range union(old, now) {
		path := append(slices.Clone(path), name)
		x, had := old[name]
		y, has := now[name]
		switch {
		case !has:
			report(path, "is gone", x.shown, nil, x.guards)
			continue
		case !had:
			report(path, "is new", nil, y.shown, true)
			continue
		}
		for _, list := range union(x.words, y.words) {
			for _, w := range x.words[list] {
				if !slices.Contains(y.words[list], w) {
					report(path, list, w, nil, false)
				}
			}
			for _, w := range y.words[list] {
				if !slices.Contains(x.words[list], w) {
					report(path, list, nil, w, true)
				}
			}
		}
		for _, what := range union(x.facts, y.facts) {
			if v, w := x.facts[what], y.facts[what]; !reflect.DeepEqual(v, w) {
				report(path, what, v, w, widens(what, v, w))
			}
		}
		compareParts(x.parts, y.parts, path, report)
	}
}

// widens reports whether a changed fact lets more through, or lets policy or the user see less. A
// client asks its user by the hints. A change that is not known to narrow widens.
func widens(what string, old, now any) bool {
	switch what {
	case "version", "code", "title", "description", "runs", "output_schema", // it grants nothing
		"signature":
		return false
	case "signed by": // another signer, or none any more
		return old != nil
	case "hint idempotent":
		return now == true
	case "required":
		return now != true
	case "minimum", "minLength", "minItems":
		return old != nil && (now == nil || number(now) < number(old))
	case "maximum", "maxLength", "maxItems", "budget_ms":
		return old != nil && (now == nil || number(now) > number(old))
	case "pattern":
		return old != nil
	case "enum":
		before, _ := old.([]any)
		after, isList := now.([]any)
		more := func(v any) bool {
			same := func(o any) bool { return reflect.DeepEqual(o, v) }
			return !slices.ContainsFunc(before, same)
		}
		return old != nil && (!isList || slices.ContainsFunc(after, more))
	}
	return true
}

func partsOf(entries map[string]Entry) (map[string]part, error) {
	all := map[string]part{}
	for name, e := range entries {
		tools, err := e.Tools()
		if err != nil {
			return nil, err
		}
		// Locks can differ in what they say of the same module, and that is what is served.
		p := part{shown: e.Version, words: map[string][]string{"module imports": e.Imports},
			facts: map[string]any{"version": e.Version, "code": e.Digest}, parts: map[string]part{}}
		if e.Signed != nil {
			p.facts["signed by"], p.facts["signature"] = e.Signed.By, e.Signed.Signature
		}
		for _, t := range tools {
			p.parts[t.Kind+" "+t.Name] = partOf(t)
		}
		all[name] = p
	}
	return all, nil
}

// partOf is a tool, a resource or a prompt.
func partOf(t *terms.Tool) part {
	input := tree(t.InputSchema)
	p := part{
		shown: map[string]any{"title": t.Title, "imports": t.Imports, "commands": t.Commands,
			"targets": t.TargetKinds, "runs": t.Runs},
		words: map[string][]string{"imports": t.Imports, "commands": t.Commands},
		facts: map[string]any{"hint read_only": t.Hints.ReadOnly,
			"hint destructive": t.Hints.Destructive, "hint idempotent": t.Hints.Idempotent,
			"hint open_world": t.Hints.OpenWorld, "budget_ms": t.Budget.Milliseconds(),
			"uri": t.URI, "title": t.Title, "description": t.Description, "runs": t.Runs,
			"alias_of": t.AliasOf, "output_schema": tree(t.OutputSchema), "$defs": input["$defs"]},
		parts: map[string]part{}}
	required, _ := input["required"].([]any)
	properties, _ := input["properties"].(map[string]any)
	for name, p2 := range properties {
		keywords, _ := p2.(map[string]any)
		items, _ := keywords["items"].(map[string]any)
		facts := map[string]any{"required": slices.Contains(required, any(name))}
		maps.Copy(facts, keywords)
		p.parts["argument "+name] = part{shown: keywords, facts: facts,
			guards: keywords["x-caponier-target"] != nil || items["x-caponier-target"] != nil ||
				keywords["x-caponier-confirm"] != nil}
	}
	return p
}

// tree decodes a schema of a checked lock; nil is an empty one.
func tree(raw json.RawMessage) map[string]any {
	v, _ := abi.Decode(raw, 1<<20)
	t, _ := v.(map[string]any)
	return t
}

func union[V any](a, b map[string]V) []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(all)
	return slices.Compact(all)
}

// PrintChanges writes the differences for people.
func PrintChanges(w io.Writer, changes []Change) {
	wider := false
	for _, c := range changes {
		wider = wider || c.Wider
		mark := map[bool]string{true: "!", false: " "}[c.Wider]
		at := strings.TrimSpace(c.Plugin + " " + c.Item)
		fmt.Fprintf(w, "%s %s: %s: %s → %s\n", mark, at, c.What, shown(c.Old), shown(c.New))
	}
	switch {
	case len(changes) == 0:
		fmt.Fprintln(w, "nothing changes")
	case wider:
		fmt.Fprintln(w, "the lines marked ! widen what is possible, or hide something from "+
			"policy or the user")
	default:
		fmt.Fprintln(w, "nothing widens")
	}
}

func shown(v any) string {
	text, err := json.Marshal(v)
	if err != nil || string(text) == "null" {
		return "(none)"
	}
	return string(text)
}
