package sdktest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// schema has the keywords that package sdk writes.
type schema struct {
	Type                 kinds             `json:"type"`
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

// kinds are the types that a value may have; empty for all.
type kinds []string

// UnmarshalJSON reads one type, or a list.
func (k *kinds) UnmarshalJSON(b []byte) error {
	one := ""
	if json.Unmarshal(b, &one) == nil {
		*k = kinds{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(k))
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

// check returns an error unless the value, decoded with UseNumber, fits the schema.
func (s schema) check(at string, v any) error {
	kind, err := "", error(nil)
	switch v := v.(type) {
	case map[string]any:
		kind, err = "object", s.checkObject(at, v)
	case []any:
		kind, err = "array", s.checkList(at, v)
	case string:
		kind, err = "string", s.checkText(at, v)
	case json.Number:
		kind, err = s.checkNumber(at, v)
	case bool:
		kind = "boolean"
	case nil:
		kind = "null"
	}
	if err == nil && len(s.Type) > 0 && !slices.Contains(s.Type, kind) {
		return wrong(at, "is %s, not %s", kind, strings.Join(s.Type, " or "))
	}
	return err
}

func wrong(at, format string, a ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{"/" + at}, a...)...)
}

func (s schema) checkObject(at string, v map[string]any) error {
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return wrong(at, "%s is missing", name)
		}
	}
	for name, value := range v {
		p, known := s.Properties[name]
		if !known && string(s.AdditionalProperties) == "false" {
			return wrong(at, "%s is not in the schema", name)
		}
		if !known && len(s.AdditionalProperties) > 0 {
			if err := json.Unmarshal(s.AdditionalProperties, &p); err != nil {
				return wrong(at, "schema: %w", err)
			}
		}
		if err := p.check(at+name+"/", value); err != nil {
			return err
		}
	}
	return nil
}

func (s schema) checkList(at string, v []any) error {
	if s.MinItems != nil && len(v) < *s.MinItems || s.MaxItems != nil && len(v) > *s.MaxItems {
		return wrong(at, "%d items", len(v))
	}
	if s.Items == nil {
		return nil
	}
	for i, item := range v {
		if err := s.Items.check(fmt.Sprintf("%s%d/", at, i), item); err != nil {
			return err
		}
	}
	return nil
}

func (s schema) checkText(at, v string) error {
	n := utf8.RuneCountInString(v)
	if s.MinLength != nil && n < *s.MinLength || s.MaxLength != nil && n > *s.MaxLength {
		return wrong(at, "%d characters", n)
	}
	if s.Pattern != "" {
		re, err := regexp.Compile(s.Pattern)
		if err != nil || !re.MatchString(v) {
			return wrong(at, "%q does not match %s", v, s.Pattern)
		}
	}
	if s.Enum != nil && !slices.Contains(s.Enum, any(v)) {
		return wrong(at, "%q is not one of %v", v, s.Enum)
	}
	return nil
}

// checkNumber also returns the kind: integer only where the schema wants one and it is one.
func (s schema) checkNumber(at string, v json.Number) (string, error) {
	kind := "number"
	f, err := v.Float64()
	if _, notInt := v.Int64(); notInt == nil && slices.Contains(s.Type, "integer") {
		kind = "integer"
	}
	if err != nil || s.Minimum != nil && f < *s.Minimum || s.Maximum != nil && f > *s.Maximum {
		return kind, wrong(at, "%s is out of range", v)
	}
	if s.Enum != nil && !slices.Contains(s.Enum, any(f)) {
		return kind, wrong(at, "%s is not one of %v", v, s.Enum)
	}
	return kind, nil
}
