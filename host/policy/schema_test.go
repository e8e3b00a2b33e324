package policy_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"reflect"
	"testing"

	"github.com/caponier-mcp/caponier/host/policy/input"
)

var update = flag.Bool("update", false, "write golden files")

// TestSchemaOfInputIsTheCode keeps policies/schemas/input.schema, which types every rule, equal to
// what the host sends.
func TestSchemaOfInputIsTheCode(t *testing.T) {
	props, required := map[string]any{}, []string{}
	for _, in := range input.Types {
		maps.Copy(props, schemaOf(in).(map[string]any)["properties"].(map[string]any))
	}
	for _, f := range reflect.VisibleFields(input.Types["visible"]) {
		if !f.Anonymous {
			required = append(required, f.Tag.Get("json"))
		}
	}
	want, err := json.MarshalIndent(map[string]any{
		"$schema": "http://json-schema.org/draft-07/schema#",
		"title":   "Input of a policy question",
		"description": "All three kinds in one; docs/policy.md says which fields each has. " +
			"Written by " +
			"go test ./host/policy -run Schema -update.",
		"type": "object", "additionalProperties": false, "properties": props, "required": required,
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const golden = "../../policies/schemas/input.schema"
	if *update {
		if err := os.WriteFile(golden, append(want, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.TrimSpace(got), want) {
		t.Errorf("%s is not what the host sends: run go test ./host/policy -run Schema -update",
			golden)
	}
}

func schemaOf(t reflect.Type) any {
	switch t.Kind() {
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": true}
	case reflect.Pointer:
		return map[string]any{"anyOf": []any{schemaOf(t.Elem()), map[string]any{"type": "null"}}}
	}
	props, required := map[string]any{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		name := f.Tag.Get("json")
		if f.Anonymous || name == "-" {
			continue
		}
		props[name] = schemaOf(f.Type)
		required = append(required, name)
	}
	return map[string]any{"type": "object", "properties": props, "required": required,
		"additionalProperties": false}
}
