package plaintext

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestCleanRemovesWhatActsOrHides(t *testing.T) {
	for name, c := range map[string][2]string{
		"plain text stays": {"héllo\n\tworld ✓ 日本語 👩‍💻 ❤️",
			"héllo\n\tworld ✓ 日本語 👩‍💻 ❤️"},
		"colours":                        {"\x1b[1;31mred\x1b[0m", "red"},
		"cursor and screen":              {"a\x1b[2J\x1b[1;1Hb\x1b[?25lc", "abc"},
		"C1 CSI":                         {"a\u009b31mb", "ab"},
		"window title":                   {"a\x1b]0;rm -rf /\x07b", "ab"},
		"link":                           {"\x1b]8;;http://evil\x1b\\text\x1b]8;;\x1b\\", "text"},
		"clipboard, C1 terminator":       {"a\x1b]52;c;ZXZpbA==\u009cb", "ab"},
		"C1 OSC":                         {"a\u009d0;title\x07b", "ab"},
		"unfinished title hides nothing": {"a\x1b]0;visible", "a0;visible"},
		"title of 5000 hides nothing": {"\x1b]" + strings.Repeat("x", 5000) + "\x07",
			strings.Repeat("x", 5000)},
		"nested OSC":                       {"\x1b]0;a\x1b]0;b\x07c", "0;ac"},
		"charset and reset":                {"\x1b(0\x1bcx", "x"},
		"lone ESC":                         {"a\x1b", "a"},
		"ESC before a letter beyond ASCII": {"\x1bé", "é"},
		"CRLF and CR":                      {"a\r\nb\rc", "a\nb\nc"},
		"backspace over":                   {"good\b\b\b\bevil", "goodevil"},
		"NUL, BEL, DEL":                    {"a\x00\x07\x7fb", "ab"},
		"bidi override":                    {"a\u202egnp.exe\u202c", "agnp.exe"},
		"bidi isolates and marks":          {"\u2066a\u2069\u200e\u200f\u061cb", "ab"},
		"tag characters":                   {"hi\U000e0001\U000e0069\U000e0067\U000e007f", "hi"},
		"variation selectors with bytes":   {"x\U000e0100\U000e01ef\ufe00", "x"},
		"zero-width space and BOM":         {"a\u200bb\ufeffc\u2060d", "abcd"},
		"all that is ignored by default": {
			"a\u034fb\u115f\u1160\u17b4\u17b5\u3164\uffa0\u2065\ufff0\U000e0fffc", "abc"},
		"music and shorthand unseen": {"a\U0001d159\U0001d173\U0001d17a\U0001bca0\u180b\u180fb",
			"ab"},
		"joiners of real scripts stay": {"می\u200cخواهم", "می\u200cخواهم"},
		"joiners and selectors in a row": {"a\u200d\u200c\u200db\ufe0f\ufe0e\ufe0f",
			"a\u200db\ufe0f"},
		"joiners alone carry nothing": {"\u200c\u200d\n\ufe0f\u200d", "\n"},
		"line separators":             {"a\u2028b\u2029c\u0085d", "a\nb\nc\nd"},
		"invalid UTF-8":               {"a\xff", "a\ufffd"},
	} {
		if got := Clean(c[0]); got != c[1] {
			t.Errorf("%s: %q gives %q, want %q", name, c[0], got, c[1])
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "a\x1b[31mb", "\u009d0;x\x07", "\x1b]\x1b]\x1b\\", "a\r\n\r",
		"\U000e0041", "\xc2\xff\u202e", "\x1bP1$\u009b\x18"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Clean(s)
		if !utf8.ValidString(got) || Clean(got) != got {
			t.Fatalf("%q gives %q, and again %q", s, got, Clean(got))
		}
		for _, r := range got {
			if r != '\n' && r != '\t' &&
				(r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 &&
					r <= 0x2069 || r >= 0xe0000 && r <= 0xe007f) {
				t.Fatalf("%q leaves %U", s, r)
			}
		}
	})
}

func TestCleaningHostileTextIsLinear(t *testing.T) {
	for name, unit := range map[string]string{"C1 OSC": "\u009d", "OSC": "\x1b]", "CSI": "\x1b[",
		"C1 CSI": "\u009b", "C1 OSC x": "\u009dx", "DCS 1": "\x1bP1"} {
		s := strings.Repeat(unit, 1<<20/len(unit))
		began := time.Now()
		Clean(s)
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: 1 MiB took %s", name, took)
		}
	}
}

func TestShowMarksWhatHidesOrImitates(t *testing.T) {
	for name, c := range map[string][2]string{
		"plain text stays":            {"pct destroy 105 — größer, 日本語, привет", ""},
		"escape":                      {"a\x1b[31m", "a‹U+001B›[31m"},
		"C1":                          {"a\u009b31m", "a‹U+009B›31m"},
		"newline and tab":             {"a\nb\tc", "a‹U+000A›b‹U+0009›c"},
		"direction override":          {"a\u202egnp.exe", "a‹U+202E›gnp.exe"},
		"zero width and blanks":       {"a\u200b\u00a0\u2800b", "a‹U+200B›‹U+00A0›‹U+2800›b"},
		"tags and variation":          {"a\U000e0041\ufe0f", "a‹U+E0041›‹U+FE0F›"},
		"invalid UTF-8":               {"a\xffb", "a‹U+FFFD›b"},
		"a Cyrillic letter in a word": {"\u0430pt", "\u0430‹U+0430›pt"},
		"a word of lookalikes alone": {"\u0441\u043e\u0440",
			"\u0441‹U+0441›\u043e‹U+043E›\u0440‹U+0440›"},
		"full width":           {"ｒm", "ｒ‹U+FF52›m"},
		"beside full width":    {"ｒ\u0443", "ｒ‹U+FF52›\u0443‹U+0443›"},
		"mathematical letters": {"\U0001d42bm", "\U0001d42b‹U+1D42B›m"},
		"a slash that is none": {"etc\u2215passwd", "etc\u2215‹U+2215›passwd"},
		"a minus that is none": {"rm \u2212r", "rm \u2212‹U+2212›r"},
		"units stay":           {"10 μm, 5 °C", ""},
	} {
		want := c[1]
		if want == "" {
			want = c[0]
		}
		if got := Show(c[0]); got != want {
			t.Errorf("%s: %q shows as %q, want %q", name, c[0], got, want)
		}
	}
}

// Every character of Unicode alone: what Show leaves is printable.
func TestShowLeavesNothingHidden(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r >= 0xd800 && r < 0xe000 {
			continue
		}
		got := Show("a" + string(r) + "b")
		if want := fmt.Sprintf("a‹U+%04X›b", r); hidden(r) && got != want {
			t.Fatalf("%U shows as %q, want %q", r, got, want)
		}
		if c := Clean("a" + string(r) + "b"); !strings.ContainsAny(c, "\n\t") {
			for _, left := range c {
				if unicode.IsControl(left) || removed(left) && !joins(left) {
					t.Fatalf("Clean leaves %U of %U", left, r)
				}
			}
		}
	}
}

func FuzzShow(f *testing.F) {
	for _, s := range []string{"", "a\u202e", "\u0430pt", "\u0441\u043e\u0440‹U+0440›", "\xff",
		"ｒ‹U+FF52›", "ｒ\u0443\xb9U+FF52›", "\u0443ｒ\u0436"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Show(s)
		if again := Show(got); again != got || !utf8.ValidString(got) ||
			strings.ContainsFunc(got, hidden) {
			t.Fatalf("%q shows as %q, and that as %q", s, got, again)
		}
	})
}

func TestShortCutsBetweenCharacters(t *testing.T) {
	for _, c := range []struct {
		s    string
		max  int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc…"}, {"aé", 2, "a…"}, {"é", 0, "…"}, {"", 0, ""}} {
		if got := Short(c.s, c.max); got != c.want {
			t.Errorf("Short(%q, %d) is %q, want %q", c.s, c.max, got, c.want)
		}
	}
}

// TestLongTextIsShownSoon has lines as long as the arguments of a call can be. In quadratic time
// each would take minutes.
func TestLongTextIsShownSoon(t *testing.T) {
	for _, part := range []string{"words and ", "word", "раз ", "one раз\u202e", "\x1b[",
		"а\u0301"} {
		long := strings.Repeat(part, 2<<20/len(part))
		began := time.Now()
		Show(long)
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("2 MiB of %q take %s", part, took)
		}
	}
}
