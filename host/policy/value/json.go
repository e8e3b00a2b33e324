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
	w := writer{masked: masked, mask: mask, b: make([]byte, 0, 4096)}
	w.value(v)
	return w.b
}

// Append appends a text that no other value has: as [JSON] writes it, but bytes that are no UTF-8.
func Append(b []byte, v ast.Value) []byte {
	w := writer{b: b, exact: true}
	w.value(v)
	return w.b
}

type writer struct {
	masked map[string]bool
	mask   func(string) string
	b      []byte
	below  bool // a masked member
	exact  bool // the text need not be JSON
}

func (w *writer) string(s string) {
	if w.exact && !utf8.ValidString(s) { // which JSON has no text for
		w.b = strconv.AppendQuote(w.b, s)
		return
	}
	w.b = appendString(w.b, s)
}

func (w *writer) value(v ast.Value) {
	switch v := v.(type) {
	case ast.String:
		s := string(v)
		if w.below && w.mask != nil {
			s = w.mask(s)
		}
		w.string(s)
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
	w.string(Text(k))
	w.b = append(w.b, ':')
	above := w.below
	w.below = above || w.masked[Text(k)]
	w.value(x.Value)
	w.below = above
}

// appendString quotes as encoding/json does, but leaves <, > and & alone where nothing else needs
// escaping.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f || s[i] == '"' || s[i] == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil {
				panic("value: quoting a string: " + err.Error()) // json.Marshal takes every string
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
