package value

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// JSON returns the text of the Rego value of a Go value ([Of]), with sorted keys. Text below a
// member for which masked is true goes through mask; both can be nil.
func JSON(v any, masked map[string]bool, mask func(string) string) []byte {
	w := writer{masked: masked, mask: mask, b: make([]byte, 0, 4096), quote: appendString}
	w.value(reflect.ValueOf(v))
	return w.b
}

// Append appends a text that no other value has: as [JSON] writes it, but bytes that are no UTF-8.
func Append(b []byte, v reflect.Value) []byte {
	w := writer{b: b, quote: Quote}
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

func (w *writer) value(v reflect.Value) {
	switch v = Bare(v); v.Kind() {
	case reflect.String:
		s := v.String()
		if w.below && w.mask != nil {
			s = w.mask(s)
		}
		w.b = w.quote(w.b, s)
	case reflect.Bool:
		w.b = strconv.AppendBool(w.b, v.Bool())
	case reflect.Int, reflect.Int64:
		w.b = strconv.AppendInt(w.b, v.Int(), 10)
	case reflect.Pointer:
		w.b = append(w.b, "null"...)
	case reflect.Slice:
		w.b = append(w.b, '[')
		for i := range v.Len() {
			if i > 0 {
				w.b = append(w.b, ',')
			}
			w.value(v.Index(i))
		}
		w.b = append(w.b, ']')
	case reflect.Struct:
		w.b = append(w.b, '{')
		for _, f := range membersOf(v.Type()) {
			w.member(f.name, v.FieldByIndex(f.index))
		}
		w.b = append(w.b, '}')
	case reflect.Map:
		w.b = append(w.b, '{')
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int {
			return strings.Compare(a.String(), b.String())
		})
		for _, k := range keys {
			w.member(k.String(), v.MapIndex(k))
		}
		w.b = append(w.b, '}')
	default:
		panic("policy: no text for a " + v.Kind().String())
	}
}

func (w *writer) member(name string, v reflect.Value) {
	if w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(w.quote(w.b, name), ':')
	above := w.below
	w.below = above || w.masked[name]
	w.value(v)
	w.below = above
}

// Quote quotes text as [JSON] does, and bytes that JSON has no text for as Go does.
func Quote(b []byte, s string) []byte {
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
