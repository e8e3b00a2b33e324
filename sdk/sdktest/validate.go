package sdktest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"unicode/utf8"
)

// schema is what package sdk writes, no more.
type schema struct {
	Type                 string            `json:"type"`
	Properties           map[string]schema `json:"properties"`
	Required             []string          `json:"required"`
	AdditionalProperties json.RawMessage   `json:"additionalProperties"`
	Items                *schema           `json:"items"`
	Enum                 []any             `json:"enum"`
	Pattern              string            `json:"pattern"`
	Minimum              *float64          `json:"minimum"`
	Maximum              *float64          `json:"maximum"`
	MinLength            *int              `json:"minLength"`
	MaxLength            *int              `json:"maxLength"`
	MinItems             *int              `json:"minItems"`
	MaxItems             *int              `json:"maxItems"`
}

func validate(schemaJSON json.RawMessage, args []byte) error {
	if len(schemaJSON) == 0 {
		return nil
	}
	var s schema
	if err := json.Unmarshal(schemaJSON, &s); err != nil {
		return err
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return err
	}
	return s.check("", v)
}

func (s schema) check(at string, v any) error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%s: "+format, append([]any{"/" + at}, a...)...)
	}
	kind := ""
	switch v := v.(type) {
	case map[string]any:
		kind = "object"
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				return bad("%s is missing", name)
			}
		}
		for name, value := range v {
			p, known := s.Properties[name]
			if !known {
				if string(s.AdditionalProperties) == "false" {
					return bad("%s is not an argument", name)
				}
				if err := json.Unmarshal(s.AdditionalProperties,
					&p); len(s.AdditionalProperties) > 0 && err != nil {
					return bad("schema: %w", err)
				}
			}
			if err := p.check(at+name+"/", value); err != nil {
				return err
			}
		}
	case []any:
		kind = "array"
		if s.MinItems != nil && len(v) < *s.MinItems || s.MaxItems != nil && len(v) > *s.MaxItems {
			return bad("%d items", len(v))
		}
		for i, item := range v {
			if s.Items != nil {
				if err := s.Items.check(fmt.Sprintf("%s%d/", at, i), item); err != nil {
					return err
				}
			}
		}
	case string:
		kind = "string"
		n := utf8.RuneCountInString(v)
		if s.MinLength != nil && n < *s.MinLength || s.MaxLength != nil && n > *s.MaxLength {
			return bad("%d characters", n)
		}
		if s.Pattern != "" {
			re, err := regexp.Compile(s.Pattern)
			if err != nil || !re.MatchString(v) {
				return bad("%q does not match %s", v, s.Pattern)
			}
		}
		if s.Enum != nil && !slices.Contains(s.Enum, any(v)) {
			return bad("%q is not one of %v", v, s.Enum)
		}
	case json.Number:
		kind = "number"
		f, err := v.Float64()
		if _, notInt := v.Int64(); notInt == nil && s.Type == "integer" {
			kind = "integer"
		}
		if err != nil || s.Minimum != nil && f < *s.Minimum || s.Maximum != nil && f > *s.Maximum {
			return bad("%s is out of range", v)
		}
		if s.Enum != nil && !slices.Contains(s.Enum, any(f)) {
			return bad("%s is not one of %v", v, s.Enum)
		}
	case bool:
		kind = "boolean"
	case nil:
		kind = "null"
	}
	if s.Type != "" && s.Type != kind {
		return bad("is %s, not %s", kind, s.Type)
	}
	return nil
}
