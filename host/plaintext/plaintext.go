// Package plaintext makes text from nodes, plugins and callers harmless to show.
package plaintext

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxControl is the length in bytes up to which an operating system command, a device control
// string and the like are removed whole. The text of a longer one stays readable, since hiding
// text is what such sequences are abused for.
const maxControl = 4096

// Clean removes what could act on a terminal or hide from a reader: escape sequences, control
// characters, direction overrides, invisible and tag characters. Newlines and tabs stay; a carriage
// return, which overwrites a line, becomes a newline. Joiners and the two variation selectors of
// emoji stay where a script needs them, but not in a row, which could carry data. Invalid UTF-8
// becomes U+FFFD. Clean takes linear time and Clean(Clean(s)) is Clean(s).
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
	before := '\n' // the latest character that was kept
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == 0x1b:
			if i+1 < len(s) && s[i+1] < 0x80 {
				size += escape(s[i+1], s[i+2:])
			}
			r = -1
		case r >= 0x80 && r < 0xa0 && r != 0x85: // C1: the same introducers in one character
			size += max(escape(byte(r-0x40), s[i+size:])-1, 0)
			r = -1
		case r == '\r' || r == 0x85 || r == 0x2028 || r == 0x2029:
			if r == '\r' && strings.HasPrefix(s[i+1:], "\n") {
				r = -1
			} else {
				r = '\n'
			}
		case r == 0x200c || r == 0x200d: // joiners
			if before == '\n' || before == 0x200c || before == 0x200d {
				r = -1
			}
		case r == 0xfe0e || r == 0xfe0f:
			if before == '\n' || joins(before) {
				r = -1
			}
		case removed(r):
			r = -1
		}
		if r >= 0 {
			b.WriteRune(r)
			before = r
		}
		i += size
	}
	return b.String()
}

func joins(r rune) bool { return r == 0x200c || r == 0x200d || r == 0xfe0e || r == 0xfe0f }

// removed reports whether Clean removes a character everywhere.
func removed(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) ||
		unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r) ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) ||
		r&0xfffe == 0xfffe || // not characters
		r == 0x1d159) // a musical symbol without a shape
}

// escape returns the number of bytes of an escape sequence after its ESC: the byte of its kind, and
// the bytes of rest that belong to it. For a malformed one, it counts the kind, or nothing.
func escape(kind byte, rest string) int {
	run := func(low, high byte) (i int) {
		for i < len(rest) && rest[i] >= low && rest[i] < high {
			i++
		}
		return i
	}
	switch {
	case kind == '[': // CSI: parameters, then one final byte
		if i := run(0x20, 0x40); i < len(rest) && rest[i] >= 0x40 && rest[i] < 0x7f {
			return i + 2
		}
		return 1
	case strings.IndexByte("]PX^_", kind) >= 0: // OSC, DCS, SOS, PM, APC: up to a terminator
		for i := 0; i < min(len(rest), maxControl); i++ {
			switch {
			case rest[i] == 0x07:
				return i + 2
			case strings.HasPrefix(rest[i:], "\x1b\\"), strings.HasPrefix(rest[i:], "\u009c"):
				return i + 3
			case rest[i] == 0x1b, rest[i] == 0x18, rest[i] == 0x1a,
				rest[i] == 0xc2 && i+1 < len(rest) && rest[i+1] < 0xa0:
				return 1 // cancelled, or cut off by another sequence
			}
		}
		return 1
	case kind >= 0x30 && kind < 0x7f:
		return 1
	case kind >= 0x20 && kind < 0x30:
		if i := run(0x20, 0x30); i < len(rest) && rest[i] >= 0x30 && rest[i] < 0x7f {
			return i + 2
		}
	}
	return 0
}

// hidden reports whether a character is invisible, or changes the display of others: control,
// format and unassigned characters, blanks other than the space, and variation selectors.
func hidden(r rune) bool {
	return r == unicode.ReplacementChar || !unicode.IsPrint(r) || r == 0x2800 || r == 0x1d159 ||
		unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// Show replaces each hidden character by its number, as in ‹U+202E›, newlines and tabs included,
// and writes the number behind each character that imitates an ASCII one. It is for people who make
// decisions from the text. Show takes linear time, and Show(Show(s)) is Show(s).
func Show(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		word := s
		if i := strings.IndexFunc(s, apart); i > 0 {
			word = s[:i]
		} else if i == 0 {
			_, size := utf8.DecodeRuneInString(s)
			word = s[:size]
		}
		rest := s
		s = s[len(word):]
		foreign := strings.ContainsFunc(word, func(r rune) bool {
			return unicode.IsLetter(r) && !isASCIILetter(r) && !strings.ContainsRune(lookalikes, r)
		})
		latin := strings.ContainsFunc(word, isASCIILetter)
		for i, r := range word {
			mark := fmt.Sprintf("‹U+%04X›", r)
			next := rest[min(i+utf8.RuneLen(max(r, 0)), len(word)):]
			switch {
			case hidden(r):
				b.WriteString(mark)
			case imitates(r) || strings.ContainsRune(lookalikes, r) && (latin || !foreign):
				b.WriteRune(r)
				if !strings.HasPrefix(next, mark) {
					b.WriteString(mark)
				}
			default:
				b.WriteRune(r)
			}
		}
	}
	return b.String()
}

// lookalikes are letters of other scripts that look like ASCII ones. They are marked in words that
// contain ASCII letters, or that contain no letter from which the script can be recognized.
const lookalikes = "асԁеһіјӏорԛѕухѵԝѡАВСЕНІЈКМОРЅТУХԌԚԜ" + "αοινρυγΑΒΕΖΗΙΚΜΝΟΡΤΥΧ" +
	"օոսհցզ" + "ıɑɡɩʋ" + "ᎪᏴᏟᎠᎬᎻᏦᎷᏢᏚᎢᏙᏃ"

// imitates reports whether a character is a form of an ASCII one: full-width and mathematical
// letters and digits, slashes, dots, quotes and dashes.
func imitates(r rune) bool {
	return r >= 0xff01 && r <= 0xff5e || r >= 0x1d400 && r <= 0x1d7ff ||
		r >= 0x2170 && r <= 0x217f || strings.ContainsRune("\u2044\u2215\u29f8\u2024\u2236\u02d0"+
		"\u2010\u2011\u2012\u2212\u2216\u29f5\u223c\u2223\u01c0\u037e\u2217\u201a\u2032\u02cb", r)
}

func isASCIILetter(r rune) bool { return r|0x20 >= 'a' && r|0x20 <= 'z' }

// apart reports whether a character does not belong to a word. An imitating one reveals no script.
func apart(r rune) bool {
	return !unicode.In(r, unicode.L, unicode.M, unicode.N) || hidden(r) || imitates(r)
}

// Short returns at most max bytes of s, in whole characters, with "…" behind them if it cut any.
func Short(s string, max int) string {
	if len(s) <= max {
		return s
	}
	for max > 0 && !utf8.RuneStart(s[max]) {
		max--
	}
	return s[:max] + "…"
}
