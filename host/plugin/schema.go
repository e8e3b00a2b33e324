package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

const (
	maxSchema      = 64 << 10 // bytes
	maxSchemaDepth = 16
	maxSchemaCost  = 5_000 // subschemas once every $ref is written out
	targetKey      = "x-caponier-target"
	confirmKey     = "x-caponier-confirm"
)

// keywords is the whole of JSON Schema that a plugin may use: an unknown keyword would be a rule
// that nobody checks.
var keywords = strings.Fields(
	`$schema $defs $ref title description default examples deprecated type enum const
	properties required additionalProperties minProperties maxProperties items minItems maxItems
	uniqueItems minLength maxLength pattern format minimum maximum exclusiveMinimum exclusiveMaximum
	multipleOf allOf anyOf oneOf ` + targetKey + " " + confirmKey,
)

var types = strings.Fields("object array string integer number boolean null")

var topKeywords = strings.Fields(
	"$schema $defs title description type properties required additionalProperties")

type linter struct {
	root    map[string]any
	closed  bool // objects must be; an output may have free keys
	marked  bool // something has an x-caponier mark
	confirm string
	costs   map[string]int // of $defs; 0 while being computed, which is how a cycle shows
}

// lintSchema checks a schema against the rules for plugins.
func lintSchema(raw json.RawMessage, input bool) error {
	v, err := abi.Decode(raw, maxSchema)
	if err != nil {
		return err
	}
	root, ok := v.(map[string]any)
	l := linter{root: root, closed: input, costs: map[string]int{}}
	if !ok || l.root["type"] != "object" {
		return errors.New(`the top must have "type":"object"`)
	}
	for _, k := range slices.Sorted(maps.Keys(l.root)) {
		if !slices.Contains(topKeywords, k) {
			return fmt.Errorf("%s is not allowed at the top", k)
		}
	}
	if s, ok := l.root["$schema"]; ok && s != "https://json-schema.org/draft/2020-12/schema" {
		return fmt.Errorf("$schema is %v, this host reads draft 2020-12", s)
	}
	cost, err := l.schema("", l.root, 0)
	switch {
	case err != nil:
		return err
	case cost > maxSchemaCost:
		return fmt.Errorf("has %d subschemas with every $ref written out, over the limit of %d",
			cost,
			maxSchemaCost)
	case !input && l.marked:
		return errors.New("x-caponier marks are for input schemas")
	}
	return nil
}

// schema walks one schema and returns its cost.
func (l *linter) schema(at string, v any, depth int) (cost int, err error) {
	s, ok := v.(map[string]any)
	if !ok {
		return 0, fmt.Errorf("%s: want a schema object, got %s", show(at), kindOf(v))
	}
	if depth > maxSchemaDepth {
		return 0, fmt.Errorf("%s: nested deeper than %d", show(at), maxSchemaDepth)
	}
	if err := l.own(at, s); err != nil {
		return 0, err
	}
	cost = 1
	add := func(at string, v any) {
		if err == nil && cost <= maxSchemaCost {
			var c int
			c, err = l.schema(at, v, depth+1)
			cost += c
		}
	}
	for _, k := range []string{"properties", "$defs"} {
		sub, isMap := s[k].(map[string]any)
		if s[k] != nil && (!isMap || k == "$defs" && at != "") {
			return 0, fmt.Errorf("%s: %s is not an object of schemas, or not at the top", show(at),
				k)
		}
		for _, name := range slices.Sorted(maps.Keys(sub)) {
			if l.closed && !itemName.MatchString(name) {
				return 0, fmt.Errorf("%s: name %q: want 1 to 64 of A-Z a-z 0-9 _ . -", show(at),
					name)
			}
			add(at+"/"+k+"/"+name, sub[name])
		}
	}
	for _, k := range []string{"allOf", "anyOf", "oneOf"} {
		list, isList := s[k].([]any)
		if s[k] != nil && (!isList || len(list) == 0) {
			return 0, fmt.Errorf("%s: %s is not a list of schemas", show(at), k)
		}
		for i, sub := range list {
			add(fmt.Sprintf("%s/%s/%d", at, k, i), sub)
		}
	}
	if s["items"] != nil {
		add(at+"/items", s["items"])
	}
	if free, isSchema := s["additionalProperties"].(map[string]any); isSchema {
		add(at+"/additionalProperties", free)
	}
	if err == nil && s["$ref"] != nil {
		var c int
		c, err = l.ref(at, s["$ref"], depth)
		cost += c
	}
	return cost, err
}

// own checks what a schema says itself, without its subschemas.
func (l *linter) own(at string, s map[string]any) error {
	for _, k := range slices.Sorted(maps.Keys(s)) {
		if !slices.Contains(keywords, k) {
			return fmt.Errorf("%s: keyword %q is not allowed", show(at), k)
		}
	}
	if at == "" {
		if err := noHidden("", s); err != nil {
			return err
		}
	}
	if s["type"] == nil && s["$ref"] == nil && s["enum"] == nil && s["const"] == nil &&
		s["anyOf"] == nil && s["oneOf"] == nil && s["allOf"] == nil {
		return fmt.Errorf("%s: has no type, so anything would do", show(at))
	}
	if p, isText := s["pattern"].(string); isText {
		if err := anchored(p); err != nil {
			return fmt.Errorf("%s: pattern %q: %w", show(at), p, err)
		}
	}
	if err := l.object(at, s); err != nil {
		return err
	}
	return l.marks(at, s)
}

// object checks the types, and that no object takes keys that its schema does not name.
func (l *linter) object(at string, s map[string]any) error {
	all, isList := s["type"].([]any)
	if !isList && s["type"] != nil {
		all = []any{s["type"]}
	}
	for _, k := range all {
		if name, _ := k.(string); !slices.Contains(types, name) {
			return fmt.Errorf("%s: type %v is not one of %s", show(at), k, strings.Join(types, " "))
		}
	}
	if !slices.Contains(all, any("object")) {
		if s["properties"] != nil || s["additionalProperties"] != nil {
			return fmt.Errorf("%s: has properties but not the type object", show(at))
		}
		return nil
	}
	if s["additionalProperties"] != false && l.closed {
		return fmt.Errorf("%s: needs \"additionalProperties\":false", show(at))
	}
	props, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, r := range required {
		if name, _ := r.(string); props[name] == nil {
			return fmt.Errorf("%s: requires %v, which is not among its properties", show(at), r)
		}
	}
	return nil
}

// ref follows a reference inside the schema. A cycle would let the validator recurse for ever,
// repeated doubling would let it run for ever.
func (l *linter) ref(at string, v any, depth int) (int, error) {
	name, ok := v.(string)
	name, local := strings.CutPrefix(name, defs)
	all, _ := l.root["$defs"].(map[string]any)
	to, found := all[name]
	if !ok || !local || !found || strings.ContainsAny(name, "/~%") {
		return 0, fmt.Errorf("%s: $ref %v does not name one of the schema's own $defs", show(at), v)
	}
	cost, seen := l.costs[name]
	if seen && cost == 0 {
		return 0, fmt.Errorf("%s: $ref %s%s refers to itself", show(at), defs, name)
	}
	if seen {
		return cost, nil
	}
	l.costs[name] = 0
	cost, err := l.schema("/$defs/"+name, to, depth+1)
	l.costs[name] = cost
	return cost, err
}

// marks notes x-caponier-target and x-caponier-confirm, and refuses them where the host would not
// look.
func (l *linter) marks(at string, s map[string]any) error {
	parts := strings.Split(at, "/") // "", properties, NAME, items
	top := len(parts) == 3 && parts[1] == "properties"
	item := len(parts) == 4 && parts[1] == "properties" && parts[3] == "items" &&
		l.property(parts[2])["type"] == "array"
	if kind, marked := s[targetKey]; marked {
		want := "string"
		if kind == "vmid" {
			want = "integer"
		}
		name, _ := kind.(string)
		switch {
		case targetKinds[name] == "":
			return fmt.Errorf("%s: %s %v is not known; want one of %s", show(at), targetKey, kind,
				strings.Join(slices.Sorted(maps.Keys(targetKinds)), " "))
		case !top && !item:
			return fmt.Errorf("%s: %s may only mark a top-level argument or the items of one",
				show(at), targetKey)
		case s["type"] != want:
			return fmt.Errorf("%s: a target of kind %v must have the type %s", show(at), kind, want)
		}
		l.marked = true
	}
	if on, marked := s[confirmKey]; marked {
		switch {
		case on != true || !top || s["type"] != "boolean":
			return fmt.Errorf("%s: %s must be true, on a top-level boolean", show(at), confirmKey)
		case l.confirm != "":
			return fmt.Errorf("%s: %s is already on %s", show(at), confirmKey, l.confirm)
		}
		l.confirm, l.marked = parts[2], true
	}
	return nil
}

// property returns a property of the top.
func (l *linter) property(name string) map[string]any {
	all, _ := l.root["properties"].(map[string]any)
	p, _ := all[name].(map[string]any)
	return p
}

// anchored checks that a pattern speaks about the whole text, whatever its alternatives are.
func anchored(pattern string) error {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return err
	}
	if re.Op != syntax.OpConcat || re.Sub[0].Op != syntax.OpBeginText ||
		re.Sub[len(re.Sub)-1].Op != syntax.OpEndText {
		return errors.New(
			"must begin with ^ and end with $, with any alternatives in brackets between them")
	}
	return nil
}

// noHidden refuses characters that do not show in any text of a schema, since all of it is shown to
// a model.
func noHidden(at string, v any) error {
	switch v := v.(type) {
	case string:
		return readable(show(at), v, 0, 4096, "")
	case []any:
		for _, e := range v {
			if err := noHidden(at, e); err != nil {
				return err
			}
		}
	case map[string]any:
		for k, e := range v {
			if err := errors.Join(readable(show(at), k, 0, 128, ""), noHidden(at+"/"+k,
				e)); err != nil {
				return err
			}
		}
	}
	return nil
}

func show(at string) string {
	if at == "" {
		return "the top"
	}
	return strings.TrimPrefix(at, "/")
}
