// Package value converts between Go values and Rego's. It also writes Rego values as JSON. Each
// direction is exact: what has another type or other members is an error, never a guess.
package value

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// A member is a field of a struct with the key that Rego knows it by.
type member struct {
	index []int
	key   *ast.Term
	name  string
}

var members sync.Map // []member, by the type of the struct

func membersOf(t reflect.Type) []member {
	if known, ok := members.Load(t); ok {
		return known.([]member)
	}
	var all []member
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("json"); !f.Anonymous && name != "" && name != "-" {
			all = append(all, member{f.Index, ast.InternedTerm(name), name})
		}
	}
	slices.SortFunc(all, func(a, b member) int { return strings.Compare(a.name, b.name) })
	members.Store(t, all)
	return all
}

// Of returns the Rego value of a Go value, and a Rego value as it is. A nil slice is [], a nil
// pointer is null. Of panics on a type that no input has.
func Of(v any) ast.Value {
	if is, ok := v.(ast.Value); ok {
		return is
	}
	var m maker
	return m.term(reflect.ValueOf(v)).Value
}

// Bare returns what v holds, without interfaces and pointers but a nil one, which is null.
func Bare(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	return v
}

// Member returns a member of a struct or map, as the Rego value has it; its Kind is Invalid if
// there is none.
func Member(v reflect.Value, name string) (x reflect.Value) {
	if v.Kind() == reflect.Map {
		return v.MapIndex(reflect.ValueOf(name).Convert(v.Type().Key()))
	}
	all := membersOf(v.Type())
	i, ok := slices.BinarySearchFunc(all, name, func(m member, name string) int {
		return strings.Compare(m.name, name)
	})
	if ok {
		x = v.FieldByIndex(all[i].index)
	}
	return x
}

// A maker makes the terms of one document, many in one allocation.
type maker struct {
	terms []ast.Term
	pairs [][2]*ast.Term // of the objects that are being made
}

func (m *maker) of(v ast.Value) *ast.Term {
	if len(m.terms) == cap(m.terms) {
		m.terms = make([]ast.Term, 0, 32)
	}
	m.terms = append(m.terms, ast.Term{Value: v})
	return &m.terms[len(m.terms)-1]
}

// object takes the pairs from a place on, and leaves those before it.
func (m *maker) object(from int) *ast.Term {
	t := m.of(ast.NewObject(m.pairs[from:]...))
	m.pairs = m.pairs[:from]
	return t
}

func (m *maker) term(v reflect.Value) *ast.Term {
	switch v = Bare(v); v.Kind() {
	case reflect.String:
		return m.of(ast.InternedValue(v.String()))
	case reflect.Bool:
		return ast.InternedTerm(v.Bool())
	case reflect.Int, reflect.Int64:
		return ast.InternedTerm(int(v.Int()))
	case reflect.Pointer: // nil
		return ast.InternedNullTerm
	case reflect.Slice:
		if v.Len() == 0 {
			return ast.InternedEmptyArray
		}
		terms := make([]*ast.Term, v.Len())
		for i := range terms {
			terms[i] = m.term(v.Index(i))
		}
		return m.of(ast.NewArray(terms...))
	case reflect.Map:
		from := len(m.pairs)
		for it := v.MapRange(); it.Next(); {
			key := m.of(ast.InternedValue(it.Key().String()))
			m.pairs = append(m.pairs, [2]*ast.Term{key, m.term(it.Value())})
		}
		return m.object(from)
	case reflect.Struct:
		from := len(m.pairs)
		for _, f := range membersOf(v.Type()) {
			m.pairs = append(m.pairs, [2]*ast.Term{f.key, m.term(v.FieldByIndex(f.index))})
		}
		return m.object(from)
	}
	panic("policy: no Rego value for a " + v.Kind().String())
}

// Read fills the Go value that into points to from a Rego value, exactly: a member that is missing
// or unknown, and a value of another type, is an error that names its place, which begins with at.
func Read(at string, v ast.Value, into any) error {
	return read(at, v, reflect.ValueOf(into).Elem())
}

func read(at string, v ast.Value, into reflect.Value) error {
	ok := false
	switch into.Kind() {
	case reflect.String:
		var s ast.String
		s, ok = v.(ast.String)
		into.SetString(string(s))
	case reflect.Bool:
		var b ast.Boolean
		b, ok = v.(ast.Boolean)
		into.SetBool(bool(b))
	case reflect.Int, reflect.Int64:
		var n int64
		if number, isNumber := v.(ast.Number); isNumber {
			n, ok = number.Int64()
		}
		into.SetInt(n)
	case reflect.Pointer:
		if _, null := v.(ast.Null); null {
			return nil
		}
		into.Set(reflect.New(into.Type().Elem()))
		return read(at, v, into.Elem())
	case reflect.Slice:
		if list, isList := v.(*ast.Array); isList {
			into.Set(reflect.MakeSlice(into.Type(), list.Len(), list.Len()))
			for i := range list.Len() {
				err := read(fmt.Sprintf("%s[%d]", at, i), list.Elem(i).Value, into.Index(i))
				if err != nil {
					return err
				}
			}
			return nil
		}
	case reflect.Map:
		if into.Type().Elem().Kind() == reflect.Struct {
			return readMap(at, v, into)
		}
		return readScalars(at, v, into)
	case reflect.Struct:
		if doc, isObject := v.(ast.Object); isObject {
			return readStruct(at, doc, into)
		}
	}
	if !ok {
		return fmt.Errorf("%s is %v, want %s", at, v, into.Kind())
	}
	return nil
}

func readStruct(at string, doc ast.Object, into reflect.Value) error {
	fields := membersOf(into.Type())
	for _, f := range fields {
		t := doc.Get(f.key)
		if t == nil {
			return fmt.Errorf("%s.%s is missing", at, f.name)
		}
		if err := read(at+"."+f.name, t.Value, into.FieldByIndex(f.index)); err != nil {
			return err
		}
	}
	if doc.Len() == len(fields) {
		return nil
	}
	return doc.Iter(func(k, _ *ast.Term) error {
		if !slices.ContainsFunc(fields, func(f member) bool { return f.key.Equal(k) }) {
			return fmt.Errorf("%s has no member %v", at, k)
		}
		return nil
	})
}

// readMap reads a map whose values are structs.
func readMap(at string, v ast.Value, into reflect.Value) error {
	doc, ok := v.(ast.Object)
	if !ok {
		return fmt.Errorf("%s is %v, want an object", at, v)
	}
	into.Set(reflect.MakeMap(into.Type()))
	return doc.Iter(func(k, x *ast.Term) error {
		one := reflect.New(into.Type().Elem()).Elem()
		err := read(at+"."+Text(k), x.Value, one)
		into.SetMapIndex(reflect.ValueOf(Text(k)), one)
		return err
	})
}

// readScalars reads a map whose values are text, true, false or whole numbers, or the mark of a
// redacted value.
func readScalars(at string, v ast.Value, into reflect.Value) error {
	doc, ok := v.(ast.Object)
	if !ok {
		return fmt.Errorf("%s is %v, want an object", at, v)
	}
	scalars := map[string]any{}
	into.Set(reflect.ValueOf(scalars))
	return doc.Iter(func(k, x *ast.Term) error {
		switch x := x.Value.(type) {
		case ast.String:
			scalars[Text(k)] = string(x)
			return nil
		case ast.Boolean:
			scalars[Text(k)] = bool(x)
			return nil
		case ast.Number:
			if n, whole := x.Int64(); whole {
				scalars[Text(k)] = n
				return nil
			}
		case ast.Object:
			if x.Compare(redactedMark) == 0 {
				scalars[Text(k)] = Redacted
				return nil
			}
		}
		return fmt.Errorf("%s.%s is neither text, true, false nor a whole number", at, Text(k))
	})
}

// Text returns the text of a term, "" if it is no text.
func Text(t *ast.Term) string {
	s, _ := t.Value.(ast.String)
	return string(s)
}

// Redacted stands in a document for a value that is not kept.
var Redacted = map[string]bool{"redacted": true}

var redactedMark = Of(Redacted)

// Fields returns the names of the members of a type's Rego value.
func Fields(t reflect.Type) (names []string) {
	for _, m := range membersOf(t) {
		names = append(names, m.name)
	}
	return names
}
