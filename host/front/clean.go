package front

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxControlString is the longest operating system command, device control string and the like that
// is taken out whole. What claims to be longer stays readable: hiding text is what such sequences
// are abused for.
const maxControlString = 4096

// clean takes out what could act on a terminal or hide from a reader: escape sequences, control
// characters, direction overrides, invisible and tag characters. Newline and tab stay; a carriage
// return, which overwrites a line, becomes a newline.
func clean(s string) string { return Clean(s) }

// Clean is what clean does, for other places that show text from a node or a plugin.
func Clean(s string) string {
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = s[i] >= ' ' && s[i] < 0x7f || s[i] == '\n' || s[i] == '\t'
	}
	if plain {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == 0x1b:
			if i+1 < len(s) && s[i+1] < 0x80 {
				size += escape(s[i+1], s[i+2:])
			}
		case r >= 0x80 && r < 0xa0 && r != 0x85: // the same introducers in one character
			size += max(escape(byte(r-0x40), s[i+size:])-1, 0)
		case r == '\r' || r == 0x85 || r == 0x2028 || r == 0x2029:
			if next := i + size; r != '\r' || next >= len(s) || s[next] != '\n' {
				b.WriteByte('\n')
			}
		case !hidden(r):
			b.WriteRune(r) // invalid UTF-8 becomes U+FFFD
		}
		i += size
	}
	return b.String()
}

// hidden reports whether a character shows nothing by itself but changes or smuggles something.
func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case unicode.IsControl(r),
		// soft hyphen, marks, zero-width space; joiners are letters to some scripts
		r == 0xad, r == 0x61c, r == 0x180e, r == 0x200b, r == 0x200e, r == 0x200f,
		// direction embeddings, overrides and isolates; invisible operators
		r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x206f,
		// fillers, the grapheme joiner, vowels that are never shown
		unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r),
		// a notehead that is none, beams, shorthand's joiners
		r == 0x1d159, r >= 0x1d173 && r <= 0x1d17a, r >= 0x1bca0 && r <= 0x1bca3,
		// they carry bytes; two choose how emoji look and stay
		unicode.Is(unicode.Variation_Selector, r) && r != 0xfe0e && r != 0xfe0f,
		r == 0xfeff, r >= 0xfff9 && r <= 0xfffb, r&0xfffe == 0xfffe,
		r >= 0xe0000 && r <= 0xe007f: // tags
		return true
	}
	return false
}

// escape gives how much of an escape sequence follows its ESC: the byte that says its kind and what
// belongs to it in rest. Of a sequence that is not well formed it is only the kind, or nothing.
func escape(kind byte, rest string) int {
	switch {
	case kind == '[':
		i := 0
		for i < len(rest) && rest[i] >= 0x20 && rest[i] < 0x40 {
			i++
		}
		if i < len(rest) && rest[i] >= 0x40 && rest[i] < 0x7f {
			return 1 + i + 1
		}
		return 1
	case strings.IndexByte("]PX^_", kind) >= 0:
		for i := 0; i < min(len(rest), maxControlString); i++ {
			switch {
			case rest[i] == 0x07:
				return 1 + i + 1
			case strings.HasPrefix(rest[i:], "\x1b\\") || strings.HasPrefix(rest[i:], "\u009c"):
				return 1 + i + 2
			case rest[i] == 0x1b || rest[i] == 0x18 || rest[i] == 0x1a,
				rest[i] == 0xc2 && i+1 < len(rest) && rest[i+1] < 0xa0:
				// cut off by another sequence, or cancelled
				return 1
			}
		}
		return 1
	case kind >= 0x30 && kind < 0x7f:
		return 1
	case kind >= 0x20 && kind < 0x30:
		i := 0
		for i < len(rest) && rest[i] >= 0x20 && rest[i] < 0x30 {
			i++
		}
		if i < len(rest) && rest[i] >= 0x30 && rest[i] < 0x7f {
			return 1 + i + 1
		}
	}
	return 0
}

// budget hands out the characters that a result may hold.
type budget struct{ left, total, cut int }

// take cleans s and gives as much of it as is left, cut between characters.
func (b *budget) take(s string) string {
	s = clean(s)
	n := utf8.RuneCountInString(s)
	b.total += n
	if n <= b.left {
		b.left -= n
		return s
	}
	at := 0
	for range b.left {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	b.cut += n - b.left
	b.left = 0
	return s[:at]
}

// notice says what was left out; it is "" when nothing was.
func (b *budget) notice() string {
	if b.cut == 0 {
		return ""
	}
	return fmt.Sprintf(
		"[Truncated: %d of %d characters shown, %d left out. To get less at a time, ask for less: a smaller range or limit, a filter, or on a command line head, tail or grep.]",
		b.total-b.cut,
		b.total,
		b.cut,
	)
}
