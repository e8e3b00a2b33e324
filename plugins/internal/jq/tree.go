package jq

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// tree is decode for valid JSON with as little memory as the interpreter's types allow: texts
// without escapes are not copied, and small whole numbers are not kept as text. The document must
// not change afterwards.
func tree(b []byte) (any, error) {
	v, _, err := node(b, space(b, 0), 0)
	return v, err
}

func node(b []byte, i, depth int) (v any, end int, err error) {
	switch b[i] {
	case '[':
		list := []any{}
		if depth < 3 { // a large list; to count at each depth of a deep one would take long
			list = make([]any, 0, count(b[i:]))
		}
		for i = space(b, i+1); b[i] != ']'; i = after(b, end) {
			if v, end, err = node(b, i, depth+1); err != nil {
				return nil, 0, err
			}
			list = append(list, v)
		}
		return list, i + 1, nil
	case '{':
		object := map[string]any{}
		for i = space(b, i+1); b[i] != '}'; i = after(b, end) {
			key, colon, err := text(b, i)
			if err != nil {
				return nil, 0, err
			}
			if v, end, err = node(b, space(b, space(b, colon)+1), depth+1); err != nil {
				return nil, 0, err
			}
			object[key] = v
		}
		return object, i + 1, nil
	case '"':
		s, end, err := text(b, i)
		return s, end, err
	}
	end = skip(b, i)
	switch b[i] {
	case 'n':
		return nil, end, nil
	case 't', 'f':
		return b[i] == 't', end, nil
	}
	if word := b[i:end]; strconv.IntSize == 64 && len(word) < 19 &&
		!bytes.ContainsAny(word, ".eE-") {
		n, err := strconv.Atoi(string(word))
		return n, end, err
	}
	return json.Number(view(b[i:end])), end, nil
}

// text reads a string. One with escapes, or that is not UTF-8, is made anew.
func text(b []byte, i int) (string, int, error) {
	end := skip(b, i)
	inside := b[i+1 : end-1]
	if bytes.IndexByte(inside, '\\') < 0 && utf8.Valid(inside) {
		return view(inside), end, nil
	}
	var s string
	err := json.Unmarshal(b[i:end], &s)
	return s, end, err
}

func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
