package codec

import (
	"strconv"
	"unicode/utf8"
)

// MaxDepth is how deep values may be nested in one another.
const MaxDepth = 100

// Error says what is wrong with JSON, and at which key, if any.
type Error struct{ Key, Message string }

func (e *Error) Error() string {
	if e.Key == "" {
		return e.Message
	}
	return e.Key + ": " + e.Message
}

// A Target reads itself from one JSON value.
type Target interface{ ReadJSON(r *Reader) }

// Reader reads JSON. Its first error stays: then every further read does nothing.
type Reader struct {
	data  []byte
	at    int
	depth int
	begun bool   // nothing came yet in the object or list that is open
	key   string // read last, for errors
	err   error
}

// NewReader returns a reader of data, which must be one JSON value.
func NewReader(data []byte) *Reader { return &Reader{data: data} }

// Decode reads data, which must be one JSON value and nothing more, into v. As with encoding/json,
// null and an absent member leave what is there, and an unknown member is passed over. It refuses
// more than encoding/json: text that is not UTF-8, a known member that comes twice, and a name that
// differs in case is unknown.
func Decode(data []byte, v Target) error {
	r := NewReader(data)
	v.ReadJSON(r)
	return r.End()
}

// Valid reports why data is not one JSON value.
func Valid(data []byte) error {
	r := NewReader(data)
	r.Skip()
	return r.End()
}

// End returns the first error, which may be that more follows the value.
func (r *Reader) End() error {
	if r.space(); r.err == nil && r.at < len(r.data) {
		r.key = ""
		r.Fail("more than one JSON value")
	}
	return r.err
}

// Fail makes what, which is wrong with the member read last, the error, if there is none yet.
func (r *Reader) Fail(what string) {
	if r.err == nil {
		r.err = &Error{r.key, what}
	}
}

// Object begins an object. It is false at null, and after an error.
func (r *Reader) Object() bool { return r.open('{', "an object") }

// List begins a list. It is false at null, and after an error.
func (r *Reader) List() bool { return r.open('[', "a list") }

func (r *Reader) open(c byte, kind string) bool {
	if r.null() || r.err != nil {
		return false
	}
	if r.at == len(r.data) || r.data[r.at] != c {
		r.want(kind)
		return false
	}
	if r.depth++; r.depth > MaxDepth {
		r.Fail("nested deeper than " + strconv.Itoa(MaxDepth))
		return false
	}
	r.at++
	r.begun = true
	return true
}

// More reports whether another member of the object follows, and reads its name.
func (r *Reader) More() (name string, more bool) {
	if !r.next('}') {
		return "", false
	}
	name = r.text()
	r.key = name
	if r.space(); r.err == nil && (r.at == len(r.data) || r.data[r.at] != ':') {
		r.want("a colon")
	}
	r.at++
	return name, r.err == nil
}

// Next reports whether another element of the list follows.
func (r *Reader) Next() bool { return r.next(']') }

func (r *Reader) next(end byte) bool {
	r.space()
	switch {
	case r.err != nil:
		return false
	case r.at == len(r.data):
		r.Fail("the JSON ends early")
		return false
	case r.data[r.at] == end:
		r.at++
		r.depth--
		r.begun = false
		return false
	case r.begun:
		r.begun = false
	case r.data[r.at] == ',':
		r.at++
		r.space()
	default:
		r.want("a comma or " + string(rune(end)))
	}
	return r.err == nil
}

// Once marks that the member numbered n of an object was read, which must be for the first time.
//
//go:noinline
func (r *Reader) Once(seen *uint64, n uint) *Reader {
	if *seen&(1<<n) != 0 {
		r.Fail("comes twice")
	}
	*seen |= 1 << n
	return r
}

// Skip passes over one value.
func (r *Reader) Skip() {
	r.space()
	if r.err != nil || r.at == len(r.data) {
		r.want("a value")
		return
	}
	switch r.data[r.at] {
	case '{':
		for r.Object(); r.err == nil; r.Skip() {
			if _, more := r.More(); !more {
				return
			}
		}
	case '[':
		for r.List(); r.err == nil; r.Skip() {
			if !r.Next() {
				return
			}
		}
	case '"':
		r.text()
	case 't':
		r.word("true")
	case 'f':
		r.word("false")
	case 'n':
		r.word("null")
	default:
		r.number()
	}
}

// raw returns the text of one value, which it shares with the data.
func (r *Reader) raw() []byte {
	r.space()
	from := r.at
	r.Skip()
	if r.err != nil {
		return nil
	}
	return r.data[from:r.at]
}

func (r *Reader) space() {
	for r.at < len(r.data) {
		switch r.data[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

func (r *Reader) want(what string) {
	if r.at >= len(r.data) {
		r.Fail("the JSON ends early, want " + what)
		return
	}
	c, _ := utf8.DecodeRune(r.data[r.at:])
	r.Fail("want " + what + ", have " + strconv.QuoteRune(c) + " at byte " + strconv.Itoa(r.at))
}

// null passes over null, if it comes.
func (r *Reader) null() bool {
	r.space()
	if r.err == nil && r.at < len(r.data) && r.data[r.at] == 'n' {
		r.word("null")
		return true
	}
	return false
}

func (r *Reader) word(w string) {
	if len(r.data)-r.at < len(w) || string(r.data[r.at:r.at+len(w)]) != w {
		r.want("a value")
		return
	}
	r.at += len(w)
}

// number passes over a number, and returns its text.
func (r *Reader) number() []byte {
	r.space()
	from := r.at
	if r.err != nil {
		return nil
	}
	r.one("-", "")
	if !r.one("0", "") {
		if !r.one("123456789", "a number") {
			return nil
		}
		r.digits()
	}
	if r.one(".", "") && r.one("0123456789", "a digit") {
		r.digits()
	}
	if r.one("eE", "") {
		r.one("+-", "")
		if r.one("0123456789", "a digit") {
			r.digits()
		}
	}
	if r.err != nil {
		return nil
	}
	return r.data[from:r.at]
}

// one passes over a byte that is one of set; what it is called if it must be there.
func (r *Reader) one(set, what string) bool {
	if r.at < len(r.data) {
		for i := range len(set) {
			if r.data[r.at] == set[i] {
				r.at++
				return true
			}
		}
	}
	if what != "" {
		r.want(what)
	}
	return false
}

func (r *Reader) digits() {
	for r.at < len(r.data) && r.data[r.at] >= '0' && r.data[r.at] <= '9' {
		r.at++
	}
}
