package plugin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/google/jsonschema-go/jsonschema"
)

// compileSchemas fills in what a tool needs from its schemas, and gives the arguments that are
// targets.
func compileSchemas(t *gate.Tool) ([]target, error) {
	marks, err := lintSchema(t.InputSchema, true)
	if err != nil {
		return nil, fmt.Errorf("input_schema: %w", err)
	}
	if t.Kind != "tool" {
		if err := fillTexts(t, marks); err != nil {
			return nil, fmt.Errorf("input_schema: %w", err)
		}
	}
	if t.Kind == "resource" {
		if err := fillTemplate(t, marks); err != nil {
			return nil, err
		}
	}
	validate, err := compile(t.InputSchema)
	if err != nil {
		return nil, fmt.Errorf("input_schema: %w", err)
	}
	t.Validate = func(args map[string]any) error { return validate(args) }
	t.Derive = func(args map[string]any) (gate.Targets, []gate.CommandText, error) {
		return derive(marks.targets, args)
	}
	t.Confirm = marks.confirm
	t.TargetKinds = []string{}
	var shape struct{ Required []string }
	if err := json.Unmarshal(t.InputSchema, &shape); err != nil {
		return nil, fmt.Errorf("input_schema: %w", err)
	}
	for _, m := range marks.targets {
		// The tool must name what it declares. A local path may be left out: then policy lets no
		// operation of the call write to the workspace.
		if targetKinds[m.kind] == "local_paths" && !slices.Contains(shape.Required, m.arg) {
			continue
		}
		t.TargetKinds = append(t.TargetKinds, targetKinds[m.kind])
	}
	t.TargetKinds = sorted(t.TargetKinds)
	if t.OutputSchema == nil || string(t.OutputSchema) == "null" {
		t.OutputSchema = nil
		return marks.targets, nil
	}
	if _, err := lintSchema(t.OutputSchema, false); err != nil {
		return nil, fmt.Errorf("output_schema: %w", err)
	}
	if t.ValidateOutput, err = compile(t.OutputSchema); err != nil {
		return nil, fmt.Errorf("output_schema: %w", err)
	}
	return marks.targets, nil
}

// compile makes a validator of decoded values. It never fills in defaults: what is decided is what
// was sent.
func compile(raw json.RawMessage) (func(any) error, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	r, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		return nil, err
	}
	v, err := abi.Decode(raw, maxSchema)
	if err != nil {
		return nil, err
	}
	tree, _ := v.(map[string]any)
	return func(v any) error {
		err := r.Validate(v)
		if err == nil {
			return nil
		}
		return errors.New(cmp.Or(explainer{tree}.explain(tree, v, ""), rule(err)))
	}, nil
}

var ruleForm = regexp.MustCompile(`validating (?:/properties/)?(\S+): ([a-zA-Z]+):`)

// rule names where and what, without the values that the validator's own message repeats.
func rule(err error) string {
	if all := ruleForm.FindAllStringSubmatch(err.Error(), -1); all != nil {
		last := all[len(all)-1]
		return fmt.Sprintf("%s: breaks the rule %s of the schema", last[1], last[2])
	}
	return "does not fit the schema"
}

// explainer holds the whole schema, for its $defs.
type explainer struct{ root map[string]any }

// explain says in the caller's words what is wrong with a value that did not validate. It decides
// nothing. No value is repeated, since it may be a secret and the answer is journaled.
func (x explainer) explain(s map[string]any, v any, at string) string {
	if ref, ok := s["$ref"].(string); ok {
		all, _ := x.root["$defs"].(map[string]any)
		s, _ = all[strings.TrimPrefix(ref, defs)].(map[string]any)
		return x.explain(s, v, at)
	}
	say := func(format string, a ...any) string {
		return strings.TrimPrefix(at+": "+fmt.Sprintf(format, a...), ": ")
	}
	if want, ok := s["type"].(string); ok && kindOf(v) != want &&
		!(want == "number" && kindOf(v) == "integer") {
		return say("must be %s, got %s", article(want), article(kindOf(v)))
	}
	if enum, ok := s["enum"].([]any); ok &&
		!slices.ContainsFunc(enum, func(e any) bool { return equal(e, v) }) {
		return say("must be one of %s", list(enum))
	}
	switch v := v.(type) {
	case map[string]any:
		return x.object(s, v, at, say)
	case []any:
		if min, ok := s["minItems"].(int64); ok && int64(len(v)) < min {
			return say("has %d items, want at least %d", len(v), min)
		}
		if max, ok := s["maxItems"].(int64); ok && int64(len(v)) > max {
			return say("has %d items, want at most %d", len(v), max)
		}
		items, _ := s["items"].(map[string]any)
		for i, e := range v {
			if why := x.explain(items, e, fmt.Sprintf("%s[%d]", at, i)); why != "" {
				return why
			}
		}
	case string:
		n := int64(utf8.RuneCountInString(v))
		if min, ok := s["minLength"].(int64); ok && n < min {
			return say("has %d characters, want at least %d", n, min)
		}
		if max, ok := s["maxLength"].(int64); ok && n > max {
			return say("has %d characters, want at most %d", n, max)
		}
		if p, ok := s["pattern"].(string); ok {
			if re, err := regexp.Compile(p); err == nil && !re.MatchString(v) {
				return say("does not match the pattern %s", p)
			}
		}
	case int64, float64:
		n := number(v)
		if min, ok := s["minimum"]; ok && n < number(min) {
			return say("is less than %v", min)
		}
		if max, ok := s["maximum"]; ok && n > number(max) {
			return say("is more than %v", max)
		}
	}
	return ""
}

func (x explainer) object(s, v map[string]any, at string, say func(string, ...any) string) string {
	props, _ := s["properties"].(map[string]any)
	names := slices.Sorted(maps.Keys(props))
	for _, k := range slices.Sorted(maps.Keys(v)) {
		if _, known := props[k]; !known && s["additionalProperties"] == false {
			if len(names) == 0 {
				return say("unknown field %q; there are none", clip(k))
			}
			return say("unknown field %q; the fields are %s", clip(k), strings.Join(names, ", "))
		}
	}
	required, _ := s["required"].([]any)
	for _, r := range required {
		if _, ok := v[fmt.Sprint(r)]; !ok {
			return say("field %q is missing", r)
		}
	}
	for _, k := range names {
		sub, _ := props[k].(map[string]any)
		if e, ok := v[k]; ok {
			if why := x.explain(sub, e, strings.TrimPrefix(at+"."+k, ".")); why != "" {
				return why
			}
		}
	}
	return ""
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case int64:
		return "integer"
	case float64:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

func article(kind string) string {
	if strings.ContainsRune("aio", rune(kind[0])) {
		return "an " + kind
	}
	return "a " + kind
}

func clip(s string) string {
	if len(s) > 32 {
		return strings.ToValidUTF8(s[:32], "") + "…"
	}
	return s
}

func list(values []any) string {
	var words []string
	for _, v := range values {
		words = append(words, fmt.Sprint(v))
	}
	return strings.Join(words, ", ")
}

func equal(a, b any) bool {
	x, errA := abi.Encode(a)
	y, errB := abi.Encode(b)
	return errA == nil && errB == nil && string(x) == string(y)
}

func number(v any) float64 {
	if i, ok := v.(int64); ok {
		return float64(i)
	}
	f, _ := v.(float64)
	return f
}
