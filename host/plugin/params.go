package plugin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/google/jsonschema-go/jsonschema"
)

// compileSchemas fills in what a tool has from its schemas.
func compileSchemas(t *terms.Tool) error {
	if err := lintSchema(t.InputSchema, true); err != nil {
		return fmt.Errorf("input_schema: %w", err)
	}
	schema, validate, err := compile(t.InputSchema)
	if err != nil {
		return fmt.Errorf("input_schema: %w", err)
	}
	t.Params = params(schema)
	if t.Kind != "tool" {
		if err := fillTexts(t); err != nil {
			return fmt.Errorf("input_schema: %w", err)
		}
	}
	if t.Kind == "resource" {
		if err := fillTemplate(t); err != nil {
			return err
		}
	}
	t.Validate = func(args map[string]any) error { return validate(args) }
	t.Derive = func(_ terms.Principal, args map[string]any) (terms.Targets, []terms.CommandText,
		error) {
		return derive(t.Params, args)
	}
	t.TargetKinds = []string{}
	for _, p := range t.Params {
		if p.Confirm {
			t.Confirm = p.Name
		}
		// The tool must name what it declares. A local path may be left out: then policy lets no
		// operation of the call write to the workspace.
		kind := targetKinds[p.Target]
		if kind != "" && kind != "calls" && (kind != "local_paths" || p.Required) {
			t.TargetKinds = append(t.TargetKinds, kind)
		}
		if p.Target == "remote_dir" {
			t.TargetKinds = append(t.TargetKinds, trees)
		}
	}
	t.TargetKinds = sorted(t.TargetKinds)
	if t.OutputSchema == nil || string(t.OutputSchema) == "null" {
		t.OutputSchema = nil
		return nil
	}
	if err := lintSchema(t.OutputSchema, false); err != nil {
		return fmt.Errorf("output_schema: %w", err)
	}
	t.ValidateOutput = late(t.OutputSchema)
	return nil
}

// late returns a validator that compiles an output schema at the first result: a host starts with
// many of them. [NewEntry] compiles all.
func late(raw json.RawMessage) func(any) error {
	compiled := sync.OnceValues(func() (func(any) error, error) {
		_, validate, err := compile(raw)
		return validate, err
	})
	return func(v any) error {
		validate, err := compiled()
		if err != nil {
			return fmt.Errorf("output_schema: %w", err)
		}
		return validate(v)
	}
}

// compile returns a schema and a validator of decoded values. The validator fills in no defaults:
// what is decided is what was sent.
func compile(raw json.RawMessage) (*jsonschema.Schema, func(any) error, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, nil, err
	}
	r, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		return nil, nil, err
	}
	return &s, func(v any) error {
		err := r.Validate(v)
		if err == nil {
			return nil
		}
		return errors.New(cmp.Or(explain(&s, &s, v, ""), rule(err)))
	}, nil
}

// params returns the arguments that a linted schema describes, by name.
func params(s *jsonschema.Schema) (all []terms.Param) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		own := s.Properties[name]
		if to := resolve(s, own); to != own { // beside a reference stand only texts
			title, text := cmp.Or(own.Title, to.Title), cmp.Or(own.Description, to.Description)
			merged := *to
			own, merged.Title, merged.Description = &merged, title, text
		}
		p := terms.Param{Name: name, Title: own.Title, Description: own.Description, Type: own.Type,
			Pattern: own.Pattern, Min: own.Minimum, Max: own.Maximum,
			Required: slices.Contains(s.Required, name)}
		p.Target, _ = own.Extra[targetKey].(string)
		p.Confirm, _ = own.Extra[confirmKey].(bool)
		if own.Items != nil {
			p.Items = resolve(s, own.Items).Type
			if p.Target == "" {
				p.Target, _ = own.Items.Extra[targetKey].(string)
			}
		}
		for _, e := range own.Enum {
			p.Enum = append(p.Enum, fmt.Sprint(e))
		}
		if own.MaxLength != nil {
			p.MaxLength = *own.MaxLength
		}
		if own.Default != nil {
			_ = json.Unmarshal(own.Default, &p.Default) // it was valid JSON within the schema
		}
		all = append(all, p)
	}
	return all
}
