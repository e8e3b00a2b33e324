package abi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	maxDepth = 32
	maxKeys  = 10_000
)

// Decode reads one JSON value strictly, so that no other reader can understand it differently. It
// refuses, naming the place: more than max bytes, invalid UTF-8, NUL, keys that are equal or differ
// only in case, nesting deeper than 32, and each number that is not in its one canonical form: an
// integer within ±(2^53-1) in plain decimals, or a fraction as short as it can be written. So
// 103.0, 1.03e2, -0 and 103.00000000000000000001 are errors.
//
// Integers become int64, fractions float64, objects map[string]any and lists []any. [Encode]
// returns the same value's canonical text.
func Decode(data []byte, max int) (any, error) { return decode(data, max, math.MaxInt) }

// DecodeLimited is [Decode] with a limit on the elements of all lists together.
func DecodeLimited(data []byte, max, elements int) (any, error) {
	return decode(data, max,
		elements)
}

func decode(data []byte, max, elements int) (any, error) {
	if len(data) > max {
		return nil, fmt.Errorf("JSON of %d bytes is over the limit of %d", len(data), max)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("JSON is not valid UTF-8")
	}
	d := decoder{json.NewDecoder(bytes.NewReader(data)), 0, elements}
	d.UseNumber()
	v, err := d.value(nil, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("JSON has more after its first value")
	}
	return v, nil
}

type decoder struct {
	*json.Decoder
	keys     int // seen so far
	elements int // of lists, that may still come
}

// place is where a value stands. It becomes text only in an error, because a copy of each long key
// for every value below it would take time quadratic in the size.
type place struct {
	in    *place // nil for the outermost value
	key   string // in an object
	index int    // in a list; -1 in an object
}

func (p *place) String() string {
	if p == nil {
		return "JSON"
	}
	var parts []string
	for ; p != nil; p = p.in {
		if p.index >= 0 {
			parts = append(parts, strconv.Itoa(p.index), "/")
		} else {
			parts = append(parts, p.key, "/")
		}
	}
	slices.Reverse(parts)
	return strings.Join(parts, "")
}

func (d *decoder) value(at *place, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%s: nested deeper than %d", at, maxDepth)
	}
	tok, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	switch t := tok.(type) {
	case json.Delim:
		if t == '{' {
			return d.object(at, depth)
		}
		return d.list(at, depth)
	case json.Number:
		return number(at, string(t))
	case string:
		return t, text(at, t)
	}
	return tok, nil // bool, nil
}

func (d *decoder) object(at *place, depth int) (any, error) {
	m, folded, inside := map[string]any{}, map[string]string{}, &place{in: at, index: -1}
	for d.More() {
		tok, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		key := tok.(string)
		inside.key = key
		if err := text(inside, key); err != nil {
			return nil, err
		}
		if first, dup := folded[fold(key)]; dup {
			return nil, fmt.Errorf("%s: key %q repeats %q", at, key, first)
		}
		if d.keys++; d.keys > maxKeys {
			return nil, fmt.Errorf("%s: more than %d keys", at, maxKeys)
		}
		folded[fold(key)] = key
		if m[key], err = d.value(inside, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return m, err
}

func (d *decoder) list(at *place, depth int) (any, error) {
	l, inside := []any{}, &place{in: at}
	for ; d.More(); inside.index++ {
		if d.elements--; d.elements < 0 {
			return nil, fmt.Errorf("%s: too many elements of lists", at)
		}
		v, err := d.value(inside, depth+1)
		if err != nil {
			return nil, err
		}
		l = append(l, v)
	}
	_, err := d.Token()
	return l, err
}

// fold returns the same text for keys that some decoder might take for one key. ToUpper comes
// first, since the Kelvin sign lowers to k.
func fold(key string) string { return strings.ToLower(strings.ToUpper(key)) }

func text(at *place, s string) error {
	if strings.ContainsRune(s, 0) {
		return fmt.Errorf("%s: has a NUL character", at)
	}
	return nil
}

func number(at *place, s string) (any, error) {
	const limit = 1 << 53
	i, err := strconv.ParseInt(s, 10, 64)
	if err == nil && strconv.FormatInt(i, 10) == s && i < limit && i > -limit {
		return i, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	// Encode writes fractions nearer to zero than 1e-6 with an exponent, a second text for them.
	if err == nil && f != math.Trunc(f) && math.Abs(f) >= 1e-6 &&
		strconv.FormatFloat(f, 'f', -1, 64) == s {
		return f, nil
	}
	return nil, fmt.Errorf("%s: number %s is not in its plain form: write integers as decimals "+
		"such as 103, within ±9007199254740991", at, s)
}

// Encode returns the canonical text of a decoded value: keys sorted, no spaces, no HTML escapes.
func Encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// DecodeInto reads a JSON object strictly into the struct that dst points to. The object's own keys
// must be known, and consist of a-z, 0-9 and _, so that encoding/json cannot match one to a tag
// that differs in case.
func DecodeInto(data []byte, max int, dst any) error {
	return decodeInto(data, max, math.MaxInt, dst)
}

func decodeInto(data []byte, max, elements int, dst any) error {
	v, err := decode(data, max, elements)
	if err != nil {
		return err
	}
	m, isObject := v.(map[string]any)
	if !isObject {
		return errors.New("JSON is not an object")
	}
	for k := range m {
		if strings.Trim(k, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			return &RequestError{Field: k, Message: "unknown field"}
		}
	}
	canonical, err := Encode(v)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(canonical))
	d.DisallowUnknownFields()
	return d.Decode(dst)
}
