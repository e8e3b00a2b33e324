package front

import (
	"fmt"
	"unicode/utf8"

	"github.com/caponier-mcp/caponier/host/plaintext"
)

func clean(s string) string { return plaintext.Clean(s) }

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
