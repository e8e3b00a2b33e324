package mcp

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/host/plaintext"
)

// keptWhole is the length in characters up to which a string is never cut: status fields, names,
// exit codes.
const keptWhole = 256

// maxNesting is the depth of structured output.
const maxNesting = 64

// slot is a string of an output, where it can be replaced.
type slot struct {
	text  string // cleaned
	runes int
	set   func(string)
}

// truncation shortens the strings of one output to a number of characters altogether. Only the
// largest ones are cut, down to keptWhole characters each; what is kept is the beginning and the
// end. Everything else of the output, such as numbers, flags and short strings, stays as it is.
type truncation struct {
	slots []slot
	total int // characters of all slots
	shown int // after fit
	// cleaned says that a string or a key is not what it was.
	cleaned bool
}

func (t *truncation) add(s string, set func(string)) {
	was := s
	s = plaintext.Clean(s)
	t.cleaned = t.cleaned || s != was
	set(s)
	n := utf8.RuneCountInString(s)
	t.total += n
	t.slots = append(t.slots, slot{s, n, set})
}

// fit cuts the largest strings until at most most characters are left, and reports whether it cut
// any. The marks that it leaves count as well. If most is so small that a few strings of keptWhole
// exceed it, a quarter of it is kept instead.
func (t *truncation) fit(most int) bool {
	keep := min(keptWhole, max(most/4, 1))
	t.shown = t.total
	if t.total <= most {
		return false
	}
	slices.SortStableFunc(t.slots, func(a, b slot) int { return b.runes - a.runes })
	// The largest strings get one length, so that the output fits.
	rest, length := t.total, 0
	for i, sl := range t.slots {
		if rest -= sl.runes; sl.runes <= keep {
			break
		}
		next := 0
		if i+1 < len(t.slots) {
			next = t.slots[i+1].runes
		}
		if length = max((most-rest)/(i+1), keep); length >= next || next <= keep {
			break
		}
	}
	length = max(length, keep)
	did := false
	for _, sl := range t.slots {
		if sl.runes > length {
			sl.set(headAndTail(sl.text, sl.runes, length))
			t.shown -= sl.runes - length
			did = true
		}
	}
	return did
}

// headAndTail returns the beginning and the end of s, which has n characters, in most characters.
func headAndTail(s string, n, most int) string {
	mark := fmt.Sprintf("\n[… %d of %d characters left out …]\n", n-most, n)
	left := max(most-utf8.RuneCountInString(mark), 2)
	head := s[:len(s)-len(skip(s, left/2))]
	return head + mark + skip(s, n-(left-left/2))
}

// skip returns s without its first n characters.
func skip(s string, n int) string {
	for ; n > 0 && s != ""; n-- {
		_, size := utf8.DecodeRuneInString(s)
		s = s[size:]
	}
	return s
}

// walk cleans a decoded value and adds its strings; the value keeps its shape. Keys are cleaned
// and never cut.
func (t *truncation) walk(v any, set func(any), depth int) error {
	if depth > maxNesting {
		return fmt.Errorf("nested deeper than %d", maxNesting)
	}
	switch v := v.(type) {
	case string:
		t.add(v, func(s string) { set(s) })
	case []any:
		for i := range v {
			if err := t.walk(v[i], func(e any) { v[i] = e }, depth+1); err != nil {
				return err
			}
		}
	case map[string]any:
		m := make(map[string]any, len(v))
		set(m)
		for k, e := range v {
			was := k
			k = plaintext.Clean(k)
			t.cleaned = t.cleaned || k != was
			m[k] = e
			if err := t.walk(e, func(e any) { m[k] = e }, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// cut returns at most most characters of cleaned text.
func cut(s string, most int) string {
	s = plaintext.Clean(s)
	return s[:len(s)-len(skip(s, most))]
}
