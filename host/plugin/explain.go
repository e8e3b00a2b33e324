package plugin

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/google/jsonschema-go/jsonschema"
)

const defs = "#/$defs/"

var ruleForm = regexp.MustCompile(`validating (?:/properties/)?(\S+): ([a-zA-Z]+):`)

// rule names the place and the keyword of an error of the validator, whose own message repeats
// values.
func rule(err error) string {
	if all := ruleForm.FindAllStringSubmatch(err.Error(), -1); all != nil {
		last := all[len(all)-1]
		return fmt.Sprintf("%s: breaks the rule %s of the schema", last[1], last[2])
	}
	return "does not fit the schema"
}

// resolve follows a reference into the schema's own $defs.
func resolve(root, s *jsonschema.Schema) *jsonschema.Schema {
	if to := root.Defs[strings.TrimPrefix(s.Ref, defs)]; s.Ref != "" && to != nil {
		return resolve(root, to)
	}
	return s
}

// explain returns in a caller's words why a value does not validate, or "". It decides nothing. It
// repeats no value, since a value may be a secret and the answer is journaled.
func explain(root, s *jsonschema.Schema, v any, at string) string {
	s = resolve(root, s)
	say := func(format string, a ...any) string {
		return strings.TrimPrefix(at+": "+fmt.Sprintf(format, a...), ": ")
	}
	count := func(n int, min, max *int, what string) string {
		if min != nil && n < *min {
			return say("has %d %s, want at least %d", n, what, *min)
		}
		if max != nil && n > *max {
			return say("has %d %s, want at most %d", n, what, *max)
		}
		return ""
	}
	kind := kindOf(v)
	if s.Type != "" && kind != s.Type && !(s.Type == "number" && kind == "integer") {
		return say("must be %s, got %s", article(s.Type), article(kind))
	}
	same := func(e any) bool { return equal(e, v) }
	if s.Enum != nil && !slices.ContainsFunc(s.Enum, same) {
		return say("must be one of %s",
			strings.Trim(strings.Join(strings.Fields(fmt.Sprint(s.Enum)),
				", "), "[]"))
	}
	switch v := v.(type) {
	case map[string]any:
		return explainObject(root, s, v, at, say)
	case []any:
		if why := count(len(v), s.MinItems, s.MaxItems, "items"); why != "" {
			return why
		}
		for i, e := range v {
			if s.Items == nil {
				break
			}
			if why := explain(root, s.Items, e, fmt.Sprintf("%s[%d]", at, i)); why != "" {
				return why
			}
		}
	case string:
		if why := count(utf8.RuneCountInString(v), s.MinLength, s.MaxLength,
			"characters"); why != "" {
			return why
		}
		if re, err := regexp.Compile(s.Pattern); err == nil && !re.MatchString(v) {
			return say("does not match the pattern %s", s.Pattern)
		}
	case int64, float64:
		n := number(v)
		if s.Minimum != nil && n < *s.Minimum {
			return say("is less than %s", strconv.FormatFloat(*s.Minimum, 'f', -1, 64))
		}
		if s.Maximum != nil && n > *s.Maximum {
			return say("is more than %s", strconv.FormatFloat(*s.Maximum, 'f', -1, 64))
		}
	}
	return ""
}

func explainObject(root, s *jsonschema.Schema, v map[string]any, at string,
	say func(string, ...any) string) string {
	names := slices.Sorted(maps.Keys(s.Properties))
	closed := s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil
	for _, k := range slices.Sorted(maps.Keys(v)) {
		if s.Properties[k] != nil || !closed {
			continue
		}
		if len(names) == 0 {
			return say("unknown field %q; there are none", clip(k))
		}
		return say("unknown field %q; the fields are %s", clip(k), strings.Join(names, ", "))
	}
	for _, r := range s.Required {
		if _, ok := v[r]; !ok {
			return say("field %q is missing", r)
		}
	}
	for _, k := range names {
		if e, ok := v[k]; ok {
			if why := explain(root, s.Properties[k], e, strings.TrimPrefix(at+"."+k,
				".")); why != "" {
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

// equal compares a value of a schema, whose numbers are float64, with a decoded one.
func equal(a, b any) bool {
	if n, ok := a.(float64); ok && (kindOf(b) == "integer" || kindOf(b) == "number") {
		return n == number(b)
	}
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
