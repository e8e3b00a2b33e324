// Package codec writes and reads JSON without reflection.
//
// Written code that knows its types calls it, so that a module in the sandbox does not pay for what
// encoding/json finds out about a type in each call. It imports nothing that brings reflection.
package codec

import (
	"encoding/base64"
	"math"
	"strconv"
	"unicode/utf8"
)

// A Value writes itself as one JSON value.
type Value interface{ WriteJSON(w *Writer) }

// Writer appends JSON to its bytes. Its zero value is ready. It trusts the order of its calls: each
// member of an object is a [Writer.Key] and a value, each element a [Writer.Elem] and a value.
type Writer struct {
	b     []byte
	wrong string // what JSON has no text for
}

// Encode returns the JSON of v.
func Encode(v Value) ([]byte, error) {
	w := Writer{b: make([]byte, 0, 256)}
	v.WriteJSON(&w)
	return w.Bytes()
}

// Bytes returns what was written.
func (w *Writer) Bytes() ([]byte, error) {
	if w.wrong != "" {
		return nil, &Error{Message: w.wrong}
	}
	return w.b, nil
}

// What generated code calls in a hundred places is not inlined: the code of a module would grow by
// a tenth of a megabyte.

// Open begins an object with '{' or a list with '['.
//
//go:noinline
func (w *Writer) Open(c byte) { w.b = append(w.b, c) }

// Close ends what [Writer.Open] began, with '}' or ']'.
//
//go:noinline
func (w *Writer) Close(c byte) { w.b = append(w.b, c) }

// Elem comes before each element of a list.
//
//go:noinline
func (w *Writer) Elem() {
	if w.b[len(w.b)-1] != '[' {
		w.b = append(w.b, ',')
	}
}

// Key writes the name of a member, which must need no escapes.
//
//go:noinline
func (w *Writer) Key(name string) {
	if w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(append(append(w.b, '"'), name...), '"', ':')
}

// Name writes the name of a member that may be any text.
func (w *Writer) Name(name string) {
	if w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.Text(name)
	w.b = append(w.b, ':')
}

// Null writes null.
//
//go:noinline
func (w *Writer) Null() { w.b = append(w.b, "null"...) }

// Bool writes true or false.
//
//go:noinline
func (w *Writer) Bool(v bool) { w.b = strconv.AppendBool(w.b, v) }

// Int writes a whole number.
//
//go:noinline
func (w *Writer) Int(v int64) { w.b = strconv.AppendInt(w.b, v, 10) }

// Raw writes b, which must be one JSON value; no bytes are null, as of a json.RawMessage.
func (w *Writer) Raw(b []byte) {
	if len(b) == 0 {
		w.Null()
		return
	}
	w.b = append(w.b, b...)
}

// Checked writes b, which may turn out not to be one JSON value: then [Writer.Bytes] fails.
func (w *Writer) Checked(b []byte) {
	if err := Valid(b); err != nil {
		w.wrong = err.Error()
		return
	}
	w.b = append(w.b, b...)
}

// Base64 writes bytes as encoding/json writes a []byte.
func (w *Writer) Base64(b []byte) {
	w.b = append(w.b, '"')
	w.b = base64.StdEncoding.AppendEncode(w.b, b)
	w.b = append(w.b, '"')
}

// Float writes v as encoding/json does. A value that is no number makes [Writer.Bytes] fail.
func (w *Writer) Float(v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		w.wrong = "JSON has no text for NaN and infinity"
		return
	}
	format := byte('f')
	if a := math.Abs(v); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	w.b = strconv.AppendFloat(w.b, v, format, -1, 64)
	if n := len(w.b); format == 'e' && n >= 4 && w.b[n-4] == 'e' && w.b[n-3] == '-' &&
		w.b[n-2] == '0' {
		w.b[n-2] = w.b[n-1] // e-09 is e-9
		w.b = w.b[:n-1]
	}
}

// plain returns the place of the first byte of s from i on that is no plain character of a JSON
// string: ASCII that needs no escape. Eight bytes are looked at together, as a loop over bytes is
// most of what long text costs a module.
func plain[T string | []byte](s T, i int) int {
	const each, high = 0x0101_0101_0101_0101, 0x8080_8080_8080_8080
	for ; i+8 <= len(s); i += 8 {
		b := s[i : i+8]
		x := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
			uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
		quote, slash := x^'"'*each, x^'\\'*each
		// the high bit of a byte is set if that byte is over 127, below ' ', '"' or '\'
		if (x|(x-' '*each)&^x|(quote-each)&^quote|(slash-each)&^slash)&high != 0 {
			break
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			break
		}
	}
	return i
}

const hexadecimal = "0123456789abcdef"

// Text writes a string. Bytes that are not UTF-8 become U+FFFD.
func (w *Writer) Text(s string) {
	w.b = append(w.b, '"')
	from := 0 // s[from:i] needs no escapes
	for i := 0; i < len(s); {
		if i = plain(s, i); i == len(s) {
			break
		}
		c := s[i]
		r, size := rune(c), 1
		if c >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(s[i:])
			if r != '\u2028' && r != '\u2029' && (r != utf8.RuneError || size > 1) {
				i += size
				continue
			}
		}
		w.b = append(w.b, s[from:i]...)
		w.escape(r)
		i += size
		from = i
	}
	w.b = append(append(w.b, s[from:]...), '"')
}

func (w *Writer) escape(r rune) {
	switch r {
	case '"', '\\':
		w.b = append(w.b, '\\', byte(r))
	case '\b':
		w.b = append(w.b, '\\', 'b')
	case '\f':
		w.b = append(w.b, '\\', 'f')
	case '\n':
		w.b = append(w.b, '\\', 'n')
	case '\r':
		w.b = append(w.b, '\\', 'r')
	case '\t':
		w.b = append(w.b, '\\', 't')
	default:
		w.b = append(w.b, '\\', 'u', hexadecimal[r>>12&15], hexadecimal[r>>8&15],
			hexadecimal[r>>4&15], hexadecimal[r&15])
	}
}
