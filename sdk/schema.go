package sdk

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// mustSchema returns the JSON Schema of a type. It panics if the type has none, so that the first
// run of the plugin shows the mistake.
func mustSchema(tool string, t reflect.Type, result bool) json.RawMessage {
	s, err := schema(t, result, 0)
	if err == nil && s["type"] != "object" {
		err = fmt.Errorf("%s is not a struct or a map", t)
	}
	if err == nil {
		admitTruncated(s, result)
		var b []byte
		if b, err = json.Marshal(s); err == nil {
			return b
		}
	}
	panic(fmt.Sprintf("sdk: tool %s: %v", tool, err))
}

type object = map[string]any

// admitTruncated lets the host mark a result of which it left a part out.
func admitTruncated(s object, result bool) {
	props, closed := s["properties"].(object)
	if _, own := props["truncated"]; result && closed && !own {
		props["truncated"] = object{"type": "boolean"}
	}
}

func schema(t reflect.Type, result bool, depth int) (object, error) {
	if depth > 16 {
		return nil, fmt.Errorf("%s is nested too deep, or contains itself", t)
	}
	if t == reflect.TypeFor[json.RawMessage]() || result && writesItself(t) {
		return anything(), nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		s, err := schema(t.Elem(), result, depth+1)
		if result && err == nil {
			nullable(s)
		}
		return s, err
	case reflect.Interface:
		return anything(), nil
	case reflect.Bool:
		return object{"type": "boolean"}, nil
	case reflect.String:
		return object{"type": "string"}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}, nil
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}, nil
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "description": "Base64"}, nil
		}
		items, err := schema(t.Elem(), result, depth+1)
		return object{"type": "array", "items": items}, err
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return nil, fmt.Errorf("%s: keys of a map must be strings", t)
		}
		values, err := schema(t.Elem(), result, depth+1)
		return object{"type": "object", "additionalProperties": values}, err
	case reflect.Struct:
		return structSchema(t, result, depth)
	}
	return nil, fmt.Errorf("%s has no JSON form", t)
}

// anything is the schema of any value: a host refuses one that says nothing.
func anything() object {
	return object{"type": []string{"object", "array", "string", "number", "boolean", "null"}}
}

// writesItself reports whether a type decides on its own JSON, of which nothing is known.
func writesItself(t reflect.Type) bool {
	return t.Kind() != reflect.Interface && (t.Implements(reflect.TypeFor[json.Marshaler]()) ||
		t.Implements(reflect.TypeFor[encoding.TextMarshaler]()))
}

// nullable lets a schema of one type also admit null.
func nullable(s object) {
	if kind, one := s["type"].(string); one {
		s["type"] = []string{kind, "null"}
	}
}

// fields visits the fields that encoding/json would encode, with those of embedded structs in their
// place.
func fields(t reflect.Type,
	visit func(f reflect.StructField, name string, optional bool) error) error {
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct {
			if err := fields(f.Type, visit); err != nil {
				return err
			}
			continue
		}
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			return fmt.Errorf("%s.%s: give it a json name", t, f.Name)
		}
		_, hasDefault := f.Tag.Lookup("default")
		if err := visit(f, name, strings.Contains(opts, "omit") ||
			f.Type.Kind() == reflect.Pointer || hasDefault); err != nil {
			return err
		}
	}
	return nil
}

// structSchema describes a struct as a closed object.
func structSchema(t reflect.Type, result bool, depth int) (object, error) {
	props, required := object{}, []string{}
	err := fields(t, func(f reflect.StructField, name string, optional bool) error {
		_, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		of := f.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		s, err := schema(of, result, depth+1)
		if slices.Contains(strings.Split(opts, ","), "string") {
			s = object{"type": "string"}
		}
		if err == nil {
			err = constrain(s, f)
		}
		if _, twice := props[name]; twice && err == nil {
			err = fmt.Errorf("another field is called %q too", name)
		}
		if err != nil {
			return fmt.Errorf("%s.%s: %w", t, f.Name, err)
		}
		if result && of != f.Type && !strings.Contains(opts, "omit") {
			nullable(s)
		}
		if props[name] = s; !optional {
			required = append(required, name)
		}
		return nil
	})
	if err == nil {
		err = addDocs(t, props)
	}
	s := object{"type": "object", "properties": props, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s, err
}

// Documented is an In or an Out that describes fields by their JSON name, where a doc tag would
// make the line too long. [NewTool] panics for a name that no field has, and for a field that has a
// doc tag too. The method is called on the zero value.
type Documented interface{ Docs() map[string]string }

// addDocs adds what the type, and the structs that it embeds, say in Docs.
func addDocs(t reflect.Type, props object) error {
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && f.Type.Kind() == reflect.Struct {
			if err := addDocs(f.Type, props); err != nil {
				return err
			}
		}
	}
	d, ok := reflect.Zero(t).Interface().(Documented)
	if !ok {
		return nil
	}
	for name, text := range d.Docs() {
		field, ok := props[name].(object)
		if !ok {
			return fmt.Errorf("%s: Docs names %q, which no field has", t, name)
		}
		if has, ok := field["description"]; ok && has != text {
			return fmt.Errorf("%s: %q has a doc tag and a text in Docs", t, name)
		}
		field["description"] = text
	}
	return nil
}

// tags are the tags of a field, the keyword that each becomes, and the types that it fits.
var tags = []struct{ name, key, on string }{
	{"doc", "description", ""}, {"target", "x-caponier-target", ""},
	{"pattern", "pattern", "string"}, {"enum", "enum", "string integer"},
	{"min", "minimum", "integer number"}, {"max", "maximum", "integer number"},
	{"minlen", "minLength", "string"}, {"maxlen", "maxLength", "string"},
	{"minitems", "minItems", "array"}, {"maxitems", "maxItems", "array"},
	{"default", "default", "string integer number boolean"},
	{"confirm", "x-caponier-confirm", "boolean"},
}

// constrain adds the keywords for the tags of a field.
func constrain(s object, f reflect.StructField) error {
	limits := s // where the limits of single values go
	if s["type"] == "array" {
		limits = s["items"].(object)
	}
	for _, tag := range tags {
		text, ok := f.Tag.Lookup(tag.name)
		if !ok {
			continue
		}
		on := limits
		if tag.on == "" || tag.on == "array" || tag.name == "default" {
			on = s
		}
		kind, _ := on["type"].(string)
		if tag.on != "" && (kind == "" || !strings.Contains(tag.on, kind)) {
			return fmt.Errorf("tag %s does not fit %s", tag.name, f.Type)
		}
		v, err := tagValue(tag.name, text, kind)
		if err != nil {
			return fmt.Errorf("tag %s:%q: %w", tag.name, text, err)
		}
		on[tag.key] = v
	}
	return nil
}

func tagValue(tag, text, kind string) (any, error) {
	switch tag {
	case "doc", "target", "pattern":
		return text, nil
	case "confirm":
		return strconv.ParseBool(text)
	case "minlen", "maxlen", "minitems", "maxitems":
		return strconv.ParseUint(text, 10, 32)
	case "enum":
		var values []any
		for _, word := range strings.Split(text, ",") {
			v, err := scalar(word, kind)
			if err != nil {
				return nil, err
			}
			values = append(values, v)
		}
		return values, nil
	}
	return scalar(text, kind)
}

func scalar(text, kind string) (any, error) {
	switch kind {
	case "integer":
		return strconv.ParseInt(text, 10, 64)
	case "number":
		return strconv.ParseFloat(text, 64)
	case "boolean":
		return strconv.ParseBool(text)
	}
	return text, nil
}

// setDefaults sets the fields of a new In to the values of their default tags.
func setDefaults(v reflect.Value) error {
	if v.Kind() != reflect.Struct {
		return nil
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Type.Kind() == reflect.Struct {
			if err := setDefaults(v.Field(i)); err != nil {
				return err
			}
		}
		text, ok := f.Tag.Lookup("default")
		if !ok || !f.IsExported() {
			continue
		}
		to := v.Field(i)
		if to.Kind() == reflect.Pointer {
			to.Set(reflect.New(to.Type().Elem()))
			to = to.Elem()
		}
		if to.Kind() == reflect.String {
			to.SetString(text)
		} else if err := json.Unmarshal([]byte(text), to.Addr().Interface()); err != nil {
			return fmt.Errorf("default of %s: %w", f.Name, err)
		}
	}
	return nil
}

// noNil returns a copy in which nil lists and maps are empty, as the output schema requires.
func noNil(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 && !v.IsNil() ||
			v.Type() == reflect.TypeFor[json.RawMessage]() {
			return v
		}
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			c.Index(i).Set(noNil(v.Index(i)))
		}
		return c
	case reflect.Map:
		c := reflect.MakeMapWithSize(v.Type(), v.Len())
		for _, k := range v.MapKeys() {
			c.SetMapIndex(k, noNil(v.MapIndex(k)))
		}
		return c
	case reflect.Struct:
		c := reflect.New(v.Type()).Elem()
		c.Set(v)
		for i := range v.NumField() {
			if c.Field(i).CanSet() &&
				!strings.Contains(v.Type().Field(i).Tag.Get("json"), ",omit") {
				c.Field(i).Set(noNil(v.Field(i)))
			}
		}
		return c
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return v
		}
		e := noNil(v.Elem())
		if v.Kind() == reflect.Interface {
			return e
		}
		p := reflect.New(v.Type().Elem())
		p.Elem().Set(e)
		return p
	}
	return v
}
