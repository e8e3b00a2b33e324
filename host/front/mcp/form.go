package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/google/jsonschema-go/jsonschema"
)

// formKeys are the keywords of MCP's forms, for each type of field.
var formKeys = map[string]string{
	"string":  "minLength maxLength format enum enumNames oneOf",
	"number":  "minimum maximum",
	"integer": "minimum maximum",
	"boolean": "",
	"array":   "items minItems maxItems",
}

// newForm holds a question's schema to what MCP lets a form be, a flat object of simple fields and
// choices, and returns it for checking answers. It checks no format: the plugin has to.
func newForm(schema map[string]any) (*jsonschema.Resolved, error) {
	props, isObject := schema["properties"].(map[string]any)
	if schema["type"] != "object" || !isObject || len(props) == 0 || len(props) > 20 {
		return nil, errors.New("want an object with 1 to 20 properties")
	}
	for k := range schema {
		if !slices.Contains([]string{"type", "properties", "required", "$schema"}, k) {
			return nil, fmt.Errorf("keyword %q is not for forms", plaintext.Clean(k))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(props)) {
		field, _ := props[name].(map[string]any)
		if plaintext.Clean(name) != name || name == "" {
			return nil, fmt.Errorf("property %q: want a name of plain characters",
				plaintext.Clean(name))
		}
		if err := checkField(field); err != nil {
			return nil, fmt.Errorf("property %q: %w", name, err)
		}
	}
	closed := maps.Clone(schema)
	closed["additionalProperties"] = false
	delete(closed, "$schema")
	data, err := json.Marshal(closed)
	if err != nil {
		return nil, err
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	return s.Resolve(nil)
}

func checkField(field map[string]any) error {
	kind, _ := field["type"].(string)
	own, known := formKeys[kind]
	if !known {
		return errors.New("want a type of string, number, integer, boolean or array")
	}
	for k, v := range field {
		if !slices.Contains(strings.Fields("type title description default "+own), k) {
			return fmt.Errorf("keyword %q is not for a %s", plaintext.Clean(k), kind)
		}
		if text, isText := v.(string); isText && plaintext.Clean(text) != text {
			return fmt.Errorf("%s has control characters", k)
		}
	}
	if items, _ := field["items"].(map[string]any); kind == "array" &&
		items["enum"] == nil && items["anyOf"] == nil && items["oneOf"] == nil {
		return errors.New("items must be a choice (enum or anyOf of const)")
	}
	return nil
}
