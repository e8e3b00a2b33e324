package mcp

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/sdk/abi"
)

// hostKeywords begin the keywords that a plugin writes for the host. Clients have no use for them,
// and an agent pays for every word of the list.
const hostKeywords = "x-caponier-"

// public is a schema without the keywords that are the host's. Everything else stays as it was
// locked; what cannot be read stays whole.
func public(schema json.RawMessage) json.RawMessage {
	v, err := abi.Decode(schema, 1<<20)
	if err != nil {
		return schema
	}
	strip(v, true)
	if out, err := abi.Encode(v); err == nil {
		return out
	}
	return schema
}

// without returns a public schema that lacks one of its properties, or nil if it must have it.
func without(schema json.RawMessage, property string) json.RawMessage {
	v, _ := abi.Decode(public(schema), 1<<20)
	whole, _ := v.(map[string]any)
	properties, _ := whole["properties"].(map[string]any)
	required, _ := whole["required"].([]any)
	if properties[property] == nil || slices.Contains(required, any(property)) {
		return nil
	}
	delete(properties, property)
	out, err := abi.Encode(v)
	if err != nil {
		return nil
	}
	return out
}

// strip looks at keywords where an object is a schema; under properties and $defs the keys are
// names.
func strip(v any, schema bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			switch {
			case schema && strings.HasPrefix(k, hostKeywords):
				delete(v, k)
			case schema && (k == "default" || k == "const" || k == "enum" || k == "examples"):
				// values
			default:
				names := k == "properties" || k == "patternProperties" || k == "$defs"
				strip(inner, !schema || !names)
			}
		}
	case []any:
		for _, inner := range v {
			strip(inner, schema)
		}
	}
}
