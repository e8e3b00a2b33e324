package gate

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

// Decode reads one JSON value strictly. It refuses, naming the place: more than max bytes, invalid
// UTF-8, NUL, duplicate keys and keys that differ only in case, nesting deeper than 32, and every
// number that is not in its one canonical form: an integer within ±(2^53-1) in plain decimals, or a
// fraction as short as it can be written. So 103.0, 1.03e2, -0 and 103.00000000000000000001 are
// errors. Integers become int64, fractions float64, objects map[string]any, lists []any. [Encode]
// gives the same value back.
func Decode(data []byte, max int) (any, error) { return decode(data, max, math.MaxInt) }

func decode(data []byte, max, elements int) (any, error) {
	if len(data) > max {
		return nil, fmt.Errorf("JSON of %d bytes is over the limit of %d", len(data), max)
	}
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("JSON is not valid UTF-8")
	}
	d := decoder{json.NewDecoder(bytes.NewReader(data)), 0, elements}
	d.UseNumber()
	v, err := d.value(nil, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("JSON has more after its first value")
	}
	return v, nil
}

type decoder struct {
	*json.Decoder
	keys     int
	elements int // of lists, that may come
}

// place is where a value stands. It is written out only when something is wrong there: a copy of a
// long key for each value in it took minutes.
type place struct {
	in    *place // nil for the outermost value
	key   string // in an object,
	index int    // or in a list: -1 in an object
}

func (p *place) String() string {
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
		return nil, fmt.Errorf("%s: %w", where(at), err)
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
			return nil, fmt.Errorf("%s: %w", where(at), err)
		}
		key := tok.(string)
		inside.key = key
		if err := text(inside, key); err != nil {
			return nil, err
		}
		if first, dup := folded[fold(key)]; dup {
			return nil, fmt.Errorf("%s: key %q repeats %q", where(at), key, first)
		}
		if d.keys++; d.keys > maxKeys {
			return nil, fmt.Errorf("%s: more than %d keys", where(at), maxKeys)
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
			return nil, fmt.Errorf("%s: too many elements of lists", where(at))
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

// fold gives keys that any decoder might take for the same one the same form; ToUpper first, since
// K (Kelvin) lowers to k.
func fold(key string) string { return strings.ToLower(strings.ToUpper(key)) }

func where(at *place) string {
	if at == nil {
		return "JSON"
	}
	return at.String()
}

func text(at *place, s string) error {
	if strings.ContainsRune(s, 0) {
		return fmt.Errorf("%s: has a NUL character", where(at))
	}
	return nil
}

func number(at *place, s string) (any, error) {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil && strconv.FormatInt(i, 10) == s &&
		i < 1<<53 &&
		i > -1<<53 {
		return i, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	// Encode writes fractions nearer to zero than 1e-6 with an exponent, which would then be
	// another text for the same number.
	if err == nil && f != math.Trunc(f) && math.Abs(f) >= 1e-6 &&
		strconv.FormatFloat(f, 'f', -1, 64) == s {
		return f, nil
	}
	return nil, fmt.Errorf(
		"%s: number %s is not in its plain form: write integers as decimals such as 103, within ±9007199254740991",
		where(at),
		s,
	)
}

// Encode writes a decoded value in canonical form: keys sorted, no spaces, no HTML escapes.
func Encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// DecodeInto reads a JSON object strictly into the struct that dst points to. Its own keys must be
// lower-case ASCII words, so that none can meet a json tag that it does not equal, and known.
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
			return &BadRequest{Field: k, Message: "unknown field"}
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
