package value

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
)

// JSON returns the text of a Rego value, with sorted keys. Text below a member for which masked is
// true goes through mask; both can be nil.
func JSON(v ast.Value, masked map[string]bool, mask func(string) string) []byte {
	w := writer{masked: masked, mask: mask, b: make([]byte, 0, 4096), quote: appendString}
	w.value(v)
	return w.b
}

// Append appends a text that no other value has: as [JSON] writes it, but bytes that are no UTF-8.
func Append(b []byte, v ast.Value) []byte {
	switch v := v.(type) { // most are scalars, and a writer is an allocation
	case ast.String:
		return appendExact(b, string(v))
	case ast.Null, ast.Boolean, ast.Number:
		return append(b, v.String()...)
	}
	w := writer{b: b, quote: appendExact}
	w.value(v)
	return w.b
}

type writer struct {
	masked map[string]bool
	mask   func(string) string
	b      []byte
	below  bool // a masked member
	quote  func([]byte, string) []byte
}

func (w *writer) value(v ast.Value) {
	switch v := v.(type) {
	case ast.String:
		s := string(v)
		if w.below && w.mask != nil {
			s = w.mask(s)
		}
		w.b = w.quote(w.b, s)
	case *ast.Array:
		w.b = append(w.b, '[')
		for i := range v.Len() {
			if i > 0 {
				w.b = append(w.b, ',')
			}
			w.value(v.Elem(i).Value)
		}
		w.b = append(w.b, ']')
	case ast.Object:
		w.b = append(w.b, '{')
		v.Foreach(w.member)
		w.b = append(w.b, '}')
	default:
		w.b = append(w.b, v.String()...) // null, true, false and numbers
	}
}

func (w *writer) member(k, x *ast.Term) {
	if w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(w.quote(w.b, Text(k)), ':')
	above := w.below
	w.below = above || w.masked[Text(k)]
	w.value(x.Value)
	w.below = above
}

// appendExact quotes as [appendString] does, and bytes that JSON has no text for as Go does.
func appendExact(b []byte, s string) []byte {
	if !utf8.ValidString(s) {
		return strconv.AppendQuote(b, s)
	}
	return appendString(b, s)
}

// appendString quotes as encoding/json does, but leaves <, > and & alone where nothing else needs
// escaping.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f || s[i] == '"' || s[i] == '\\' {
			quoted, _ := json.Marshal(s) // which takes every string
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
