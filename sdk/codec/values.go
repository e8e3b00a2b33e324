package codec

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Text reads a string into p.
func Text[T ~string](r *Reader, p *T) {
	if !r.null() {
		if s := r.text(); r.err == nil {
			*p = T(s)
		}
	}
}

// Bool reads true or false into p.
func Bool[T ~bool](r *Reader, p *T) {
	switch {
	case r.null() || r.err != nil:
	case r.at < len(r.data) && r.data[r.at] == 't':
		r.word("true")
		*p = true
	case r.at < len(r.data) && r.data[r.at] == 'f':
		r.word("false")
		*p = false
	default:
		r.want("true or false")
	}
}

// Int reads a whole number into p. One with a fraction or an exponent, or that p cannot hold, is
// an error.
func Int[T ~int | ~int8 | ~int16 | ~int32 | ~int64](r *Reader, p *T) {
	if r.null() {
		return
	}
	s := r.number()
	if r.err != nil {
		return
	}
	n, err := strconv.ParseInt(string(s), 10, 64)
	if err != nil || int64(T(n)) != n {
		r.Fail("want a whole number in range, have " + short(s))
		return
	}
	*p = T(n)
}

// Float reads a number into p.
func Float[T ~float64](r *Reader, p *T) {
	if r.null() {
		return
	}
	s := r.number()
	if r.err != nil {
		return
	}
	n, err := strconv.ParseFloat(string(s), 64)
	if err != nil {
		r.Fail("want a number in range, have " + short(s))
		return
	}
	*p = T(n)
}

// Raw copies the text of one value, of any kind, into p.
func Raw[T ~[]byte](r *Reader, p *T) {
	if b := r.raw(); r.err == nil {
		*p = append(T{}, b...)
	}
}

// Own lets a type that reads its JSON itself read it.
func Own(r *Reader, p interface{ UnmarshalJSON([]byte) error }) {
	b := r.raw()
	if r.err != nil || string(b) == "null" {
		return
	}
	if err := p.UnmarshalJSON(b); err != nil {
		r.Fail(err.Error())
	}
}

// Into reads a value that reads itself into p.
func Into[T any, P interface {
	*T
	Target
}](r *Reader, p *T) {
	P(p).ReadJSON(r)
}

// List reads a list into p, each element with read. A null is no list.
func List[T any](r *Reader, p *[]T, read func(*Reader, *T)) {
	if r.null() {
		*p = nil
		return
	}
	if !r.List() {
		return
	}
	l := []T{}
	for r.Next() {
		var v T
		read(r, &v)
		l = append(l, v)
	}
	*p = l
}

// Array reads a list into p, each element with read. What p has no room for is passed over, and
// what is missing becomes zero.
func Array[T any](r *Reader, p []T, read func(*Reader, *T)) {
	if !r.List() {
		return
	}
	n := 0
	for ; r.Next(); n++ {
		if n < len(p) {
			read(r, &p[n])
		} else {
			r.Skip()
		}
	}
	clear(p[min(n, len(p)):])
}

// Map reads the members of an object into p, each with read. No name may come twice. A null is no
// map.
func Map[T any](r *Reader, p *map[string]T, read func(*Reader, *T)) {
	if r.null() {
		*p = nil
		return
	}
	if !r.Object() {
		return
	}
	m := map[string]T{}
	for {
		name, more := r.More()
		if !more {
			break
		}
		if _, twice := m[name]; twice {
			r.Fail("comes twice")
		}
		var v T
		read(r, &v)
		m[name] = v
	}
	*p = m
}

func short(b []byte) string {
	if len(b) > 40 {
		return string(b[:40]) + "…"
	}
	return string(b)
}

// text reads a string. An escape that is half of a pair becomes U+FFFD, as with encoding/json.
func (r *Reader) text() string {
	if r.err != nil {
		return ""
	}
	if r.at == len(r.data) || r.data[r.at] != '"' {
		r.want("a string")
		return ""
	}
	r.at++
	from, ascii := r.at, true
	for {
		r.at = plain(r.data, r.at)
		if r.at == len(r.data) {
			r.Fail("a string without its end")
			return ""
		}
		switch c := r.data[r.at]; {
		case c == '"':
			s := string(r.data[from:r.at])
			r.at++
			if !ascii && !utf8.ValidString(s) {
				r.Fail("a string is not UTF-8")
			}
			return s
		case c == '\\':
			return r.escaped(from)
		case c < ' ':
			r.Fail("a control character in a string")
			return ""
		default:
			for ascii = false; r.at < len(r.data) && r.data[r.at] >= utf8.RuneSelf; {
				r.at++
			}
		}
	}
}

// escaped reads a string from its first escape on.
func (r *Reader) escaped(from int) string {
	b := append(make([]byte, 0, r.at-from+64), r.data[from:r.at]...)
	for {
		next := plain(r.data, r.at)
		b = append(b, r.data[r.at:next]...)
		if r.at = next; r.at == len(r.data) {
			r.Fail("a string without its end")
			return ""
		}
		c := r.data[r.at]
		r.at++
		switch {
		case c == '"':
			if !utf8.Valid(b) {
				r.Fail("a string is not UTF-8")
			}
			return string(b)
		case c < ' ':
			r.Fail("a control character in a string")
			return ""
		case c == '\\':
			if b = r.unescape(b); r.err != nil {
				return ""
			}
		default:
			b = append(b, c)
		}
	}
}

// unescape appends what the escape means whose backslash was read.
func (r *Reader) unescape(b []byte) []byte {
	if r.at == len(r.data) {
		return b
	}
	c := r.data[r.at]
	r.at++
	switch c {
	case '"', '\\', '/':
		return append(b, c)
	case 'b':
		return append(b, '\b')
	case 'f':
		return append(b, '\f')
	case 'n':
		return append(b, '\n')
	case 'r':
		return append(b, '\r')
	case 't':
		return append(b, '\t')
	case 'u':
		one := r.hex()
		if utf16.IsSurrogate(one) {
			before := r.at
			if r.at+1 < len(r.data) && r.data[r.at] == '\\' && r.data[r.at+1] == 'u' {
				r.at += 2
				if two := utf16.DecodeRune(one, r.hex()); two != utf8.RuneError {
					return utf8.AppendRune(b, two)
				}
				r.at = before
			}
			one = utf8.RuneError
		}
		return utf8.AppendRune(b, one)
	}
	r.at--
	r.want("an escape")
	return b
}

// hex reads the four digits of an escape.
func (r *Reader) hex() (v rune) {
	if len(r.data)-r.at < 4 {
		r.Fail("a string without its end")
		return 0
	}
	n, err := strconv.ParseUint(string(r.data[r.at:r.at+4]), 16, 32)
	if err != nil {
		r.want("four hexadecimal digits")
		return 0
	}
	r.at += 4
	return rune(n)
}
