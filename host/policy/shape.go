package policy

import (
	"reflect"

	"github.com/open-policy-agent/opa/v1/ast"
)

// A shape says whether a document has exactly the members of a type of input, at every level: what
// a rule reads is there.
type shape func(ast.Value) bool

var shapes = map[string]shape{
	"call": shapeOf(
		reflect.TypeFor[callInput](),
	), "operation": shapeOf(reflect.TypeFor[operationInput]()), "visible": shapeOf(reflect.TypeFor[visibleInput]()),
}

func shapeOf(t reflect.Type) shape {
	switch t.Kind() {
	case reflect.Pointer:
		of := shapeOf(t.Elem())
		return func(v ast.Value) bool { return v == ast.NullValue || of(v) }
	case reflect.Slice:
		of := shapeOf(t.Elem())
		return func(v ast.Value) bool {
			list, ok := v.(*ast.Array)
			return v == ast.NullValue ||
				ok && !list.Until(func(x *ast.Term) bool { return !of(x.Value) })
		}
	case reflect.Struct:
		return members(t)
	}
	return func(ast.Value) bool { return true }
}

func members(t reflect.Type) shape {
	of := map[*ast.Term]shape{}
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("json"); !f.Anonymous && name != "-" {
			of[ast.StringTerm(name)] = shapeOf(f.Type)
		}
	}
	return func(v ast.Value) bool {
		doc, ok := v.(ast.Object)
		if !ok || doc.Len() != len(of) {
			return false
		}
		for name, s := range of {
			if x := doc.Get(name); x == nil || !s(x.Value) {
				return false
			}
		}
		return true
	}
}
