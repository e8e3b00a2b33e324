package memo

import (
	"reflect"

	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/open-policy-agent/opa/v1/ast"
)

// Key appends a text that is the same for two inputs if and only if they agree in the members. An
// input is a Rego value, or a Go value that stands for one ([value.Of]): the two have one text.
func (m *Members) Key(b []byte, in any) []byte { return m.top.key(b, see(in)) }

// Of returns a Rego value that agrees in the members with the input, and has little else.
func (m *Members) Of(in any) ast.Value { return m.top.of(see(in)) }

// key appends a text in which each part says where it ends.
func (m *member) key(b []byte, d document) []byte {
	if m.whole {
		return append(d.text(b), '\n')
	}
	isObject := d.kind() == object
	if !isObject && m.below != nil {
		return append(d.text(append(b, '=')), '\n')
	}
	if m.kind {
		b = append(append(b, d.kind()...), '\n')
	}
	for _, name := range m.names {
		if x, ok := d.member(name); ok {
			b = m.below[value.Text(name)].key(append(b, '+'), x)
		} else {
			b = append(b, '-')
		}
	}
	return b
}

func (m *member) of(d document) ast.Value {
	if m.whole || m.below == nil || d.kind() != object {
		return d.rego()
	}
	var pairs [][2]*ast.Term
	for _, name := range m.names {
		if x, ok := d.member(name); ok {
			pairs = append(pairs, ast.Item(name, ast.NewTerm(m.below[value.Text(name)].of(x))))
		}
	}
	return ast.NewObject(pairs...)
}

// A document is a Rego value, or a Go value that stands for one.
type document struct {
	v  ast.Value
	of reflect.Value // if v is nil
}

func see(in any) document {
	if v, ok := in.(ast.Value); ok {
		return document{v: v}
	}
	return document{of: value.Bare(reflect.ValueOf(in))}
}

const object = "object"

// kinds are what Rego calls the types that stand for its own.
var kinds = map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean",
	reflect.Int: "number", reflect.Int64: "number", reflect.Pointer: "null",
	reflect.Slice: "array", reflect.Map: object, reflect.Struct: object}

func (d document) kind() string {
	if d.v != nil {
		return ast.ValueName(d.v)
	}
	return kinds[d.of.Kind()]
}

func (d document) member(name *ast.Term) (document, bool) {
	if d.v != nil {
		if t := d.v.(ast.Object).Get(name); t != nil {
			return document{v: t.Value}, true
		}
		return document{}, false
	}
	x := value.Member(d.of, value.Text(name))
	return document{of: value.Bare(x)}, x.IsValid()
}

func (d document) rego() ast.Value {
	if d.v != nil {
		return d.v
	}
	return value.Of(d.of.Interface())
}

// text appends a text that no other value has.
func (d document) text(b []byte) []byte {
	if d.v == nil {
		return value.Append(b, d.of)
	}
	return appendRego(b, d.v)
}

func appendRego(b []byte, v ast.Value) []byte {
	switch v := v.(type) {
	case ast.String:
		return value.Quote(b, string(v))
	case *ast.Array:
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendRego(b, v.Elem(i).Value)
		}
		return append(b, ']')
	case ast.Object:
		b = append(b, '{')
		v.Foreach(func(k, x *ast.Term) {
			if b[len(b)-1] != '{' {
				b = append(b, ',')
			}
			b = appendRego(append(value.Quote(b, value.Text(k)), ':'), x.Value)
		})
		return append(b, '}')
	}
	return append(b, v.String()...) // null, true, false and numbers
}
