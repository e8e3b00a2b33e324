package front

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"unicode/utf8"
)

// formKeys are the keywords of MCP's forms, for each type of field.
var formKeys = map[string][]string{
	"string":  {"minLength", "maxLength", "format", "enum", "enumNames", "oneOf"},
	"number":  {"minimum", "maximum"},
	"integer": {"minimum", "maximum"},
	"boolean": {},
	"array":   {"items", "minItems", "maxItems"},
}

// checkForm holds a question's schema to what MCP lets a form be: a flat object of simple fields
// and choices.
func checkForm(schema map[string]any) error {
	props, isObject := schema["properties"].(map[string]any)
	if schema["type"] != "object" || !isObject || len(props) == 0 || len(props) > 20 {
		return errors.New("want an object with 1 to 20 properties")
	}
	for k := range schema {
		if !slices.Contains([]string{"type", "properties", "required", "$schema"}, k) {
			return fmt.Errorf("keyword %q is not for forms", clean(k))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(props)) {
		field, _ := props[name].(map[string]any)
		kind, _ := field["type"].(string)
		own, known := formKeys[kind]
		if !known || clean(name) != name || name == "" {
			return fmt.Errorf(
				"property %q: want a type of string, number, integer, boolean or array",
				clean(name),
			)
		}
		for k, v := range field {
			if !slices.Contains([]string{"type", "title", "description", "default"}, k) &&
				!slices.Contains(own, k) {
				return fmt.Errorf("property %q: keyword %q is not for a %s", name, clean(k), kind)
			}
			if text, isText := v.(string); isText && clean(text) != text {
				return fmt.Errorf("property %q: %s has control characters", name, k)
			}
		}
		if items, _ := field["items"].(map[string]any); kind == "array" && choices(items) == nil {
			return fmt.Errorf("property %q: items must be a choice (enum or anyOf of const)", name)
		}
	}
	return nil
}

// choices are the values that a field may have, nil for any.
func choices(field map[string]any) (values []any) {
	if list, ok := field["enum"].([]any); ok {
		return list
	}
	for _, k := range []string{"oneOf", "anyOf"} {
		list, _ := field[k].([]any)
		for _, o := range list {
			if option, ok := o.(map[string]any); ok {
				values = append(values, option["const"])
			}
		}
	}
	return values
}

// fits checks an answer against the form that was shown. It knows no format: the plugin has to
// check what it means.
func fits(schema map[string]any, answer map[string]any) error {
	props, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, r := range required {
		if name, _ := r.(string); answer[name] == nil {
			return fmt.Errorf("%s is missing", name)
		}
	}
	for name, v := range answer {
		field, known := props[name].(map[string]any)
		if !known {
			return fmt.Errorf("%s was not asked for", name)
		}
		if err := fitsField(field, v); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func fitsField(field map[string]any, v any) error {
	within := func(n float64, low, high string) error {
		if least, ok := number(field[low]); ok && n < least {
			return fmt.Errorf("is under %s", low)
		}
		if most, ok := number(field[high]); ok && n > most {
			return fmt.Errorf("is over %s", high)
		}
		return nil
	}
	wrong := fmt.Errorf("is no %v", field["type"])
	switch field["type"] {
	case "string":
		text, ok := v.(string)
		if !ok {
			return wrong
		}
		if all := choices(field); all != nil && !slices.Contains(all, any(text)) {
			return errors.New("is none of the choices")
		}
		return within(float64(utf8.RuneCountInString(text)), "minLength", "maxLength")
	case "number", "integer":
		n, ok := number(v)
		if !ok || field["type"] == "integer" && n != math.Trunc(n) {
			return wrong
		}
		return within(n, "minimum", "maximum")
	case "boolean":
		if _, ok := v.(bool); !ok {
			return wrong
		}
	case "array":
		list, ok := v.([]any)
		if !ok {
			return wrong
		}
		items, _ := field["items"].(map[string]any)
		for _, e := range list {
			if text, ok := e.(string); !ok || !slices.Contains(choices(items), any(text)) {
				return errors.New("has what is none of the choices")
			}
		}
		return within(float64(len(list)), "minItems", "maxItems")
	default:
		return wrong
	}
	return nil
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case float64:
		return n, true
	case int64:
		return float64(n), true
	}
	return 0, false
}
