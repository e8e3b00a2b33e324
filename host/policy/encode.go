package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/open-policy-agent/opa/v1/ast"
)

// An encoder turns a Go value of one type into a Rego term and into JSON. Both come from the same
// plan, so they cannot differ.
type encoder struct {
	term func(reflect.Value) *ast.Term
	json func([]byte, reflect.Value) []byte
}

// encoderFor works the type out once. It panics on a type that the input has no use for, which the
// first test run shows.
func encoderFor(t reflect.Type) encoder {
	switch t.Kind() {
	case reflect.String:
		return encoder{func(v reflect.Value) *ast.Term { return ast.InternedTerm(v.String()) },
			func(b []byte, v reflect.Value) []byte { return appendString(b, v.String()) }}
	case reflect.Bool:
		return encoder{func(v reflect.Value) *ast.Term { return ast.InternedTerm(v.Bool()) },
			func(b []byte, v reflect.Value) []byte { return strconv.AppendBool(b, v.Bool()) }}
	case reflect.Int, reflect.Int64:
		return encoder{func(v reflect.Value) *ast.Term { return ast.InternedTerm(int(v.Int())) },
			func(b []byte, v reflect.Value) []byte { return strconv.AppendInt(b, v.Int(), 10) }}
	case reflect.Pointer:
		return pointer(encoderFor(t.Elem()))
	case reflect.Slice:
		return list(encoderFor(t.Elem()))
	case reflect.Map:
		return scalars()
	case reflect.Struct:
		return object(t)
	}
	panic("policy: the input has a field of type " + t.String())
}

func pointer(of encoder) encoder {
	return encoder{
		func(v reflect.Value) *ast.Term {
			if v.IsNil() {
				return ast.InternedNullTerm
			}
			return of.term(v.Elem())
		},
		func(b []byte, v reflect.Value) []byte {
			if v.IsNil() {
				return append(b, "null"...)
			}
			return of.json(b, v.Elem())
		}}
}

func list(of encoder) encoder {
	return encoder{
		func(v reflect.Value) *ast.Term {
			terms := make([]*ast.Term, v.Len())
			for i := range terms {
				terms[i] = of.term(v.Index(i))
			}
			return ast.ArrayTerm(terms...)
		},
		func(b []byte, v reflect.Value) []byte {
			b = append(b, '[')
			for i := range v.Len() {
				if i > 0 {
					b = append(b, ',')
				}
				b = of.json(b, v.Index(i))
			}
			return append(b, ']')
		}}
}

// nullable is a list where nil says that nobody looked.
func nullable(of encoder) encoder {
	return encoder{
		func(v reflect.Value) *ast.Term {
			if v.IsNil() {
				return ast.InternedNullTerm
			}
			return of.term(v)
		},
		func(b []byte, v reflect.Value) []byte {
			if v.IsNil() {
				return append(b, "null"...)
			}
			return of.json(b, v)
		}}
}

func object(t reflect.Type) encoder {
	type field struct {
		index []int
		key   *ast.Term
		open  string
		encoder
	}
	var fields []field
	for _, f := range reflect.VisibleFields(t) {
		name := f.Tag.Get("json")
		if f.Anonymous || name == "-" {
			continue
		}
		e := encoderFor(f.Type)
		if f.Tag.Get("policy") == "nullable" {
			e = nullable(e)
		}
		fields = append(
			fields,
			field{f.Index, ast.InternedTerm(name), string(appendString(nil, name)) + ":", e},
		)
	}
	return encoder{
		func(v reflect.Value) *ast.Term {
			pairs := make([][2]*ast.Term, len(fields))
			for i, f := range fields {
				pairs[i] = [2]*ast.Term{f.key, f.term(v.FieldByIndex(f.index))}
			}
			return ast.ObjectTerm(pairs...)
		},
		func(b []byte, v reflect.Value) []byte {
			b = append(b, '{')
			for i, f := range fields {
				if i > 0 {
					b = append(b, ',')
				}
				b = f.json(append(b, f.open...), v.FieldByIndex(f.index))
			}
			return append(b, '}')
		}}
}

// scalars is for the arguments: booleans, int64 and strings, and in the journal the mark of a
// redacted one.
func scalars() encoder {
	return encoder{
		func(v reflect.Value) *ast.Term {
			pairs := make([][2]*ast.Term, 0, v.Len())
			for k, x := range v.Interface().(map[string]any) {
				var t *ast.Term
				switch x := x.(type) {
				case int64:
					t = ast.InternedTerm(int(x))
				case bool:
					t = ast.InternedTerm(x)
				default:
					t = ast.InternedTerm(x.(string)) // nothing else is decoded to a scalar
				}
				pairs = append(pairs, [2]*ast.Term{ast.InternedTerm(k), t})
			}
			return ast.ObjectTerm(pairs...)
		},
		func(b []byte, v reflect.Value) []byte {
			m := v.Interface().(map[string]any)
			b = append(b, '{')
			for i, k := range slices.Sorted(maps.Keys(m)) {
				if i > 0 {
					b = append(b, ',')
				}
				b = append(appendString(b, k), ':')
				switch x := m[k].(type) {
				case string:
					b = appendString(b, x)
				case bool:
					b = strconv.AppendBool(b, x)
				case int64:
					b = strconv.AppendInt(b, x, 10)
				default:
					b = append(b, `{"redacted":true}`...)
				}
			}
			return append(b, '}')
		}}
}

// appendString quotes as encoding/json does, but leaves <, > and & alone.
func appendString(b []byte, s string) []byte {
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = s[i] >= ' ' && s[i] < 0x7f && s[i] != '"' && s[i] != '\\'
	}
	if plain {
		return append(append(append(b, '"'), s...), '"')
	}
	quoted, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("policy: quoting a string: %v", err)) // json.Marshal takes every string
	}
	return append(b, quoted...)
}
