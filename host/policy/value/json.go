package value

import (
	"encoding/json"

	"github.com/open-policy-agent/opa/v1/ast"
)

// JSON returns the text of a Rego value, with sorted keys. Text below a member for which masked is
// true goes through mask; both can be nil.
func JSON(v ast.Value, masked map[string]bool, mask func(string) string) []byte {
	w := writer{masked, mask}
	return w.value(make([]byte, 0, 2048), v, false)
}

type writer struct {
	masked map[string]bool
	mask   func(string) string
}

func (w writer) value(b []byte, v ast.Value, below bool) []byte {
	switch v := v.(type) {
	case ast.String:
		s := string(v)
		if below && w.mask != nil {
			s = w.mask(s)
		}
		return appendString(b, s)
	case *ast.Array:
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			b = w.value(b, v.Elem(i).Value, below)
		}
		return append(b, ']')
	case ast.Object:
		b = append(b, '{')
		v.Foreach(func(k, x *ast.Term) {
			if b[len(b)-1] != '{' {
				b = append(b, ',')
			}
			b = append(appendString(b, Text(k)), ':')
			b = w.value(b, x.Value, below || w.masked[Text(k)])
		})
		return append(b, '}')
	}
	return append(b, v.String()...) // null, true, false and numbers
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
