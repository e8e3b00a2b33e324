package offline

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"unicode/utf8"
)

// TestWhatIsWrittenReadsTheSame writes answers of texts that are hard to write.
func TestWhatIsWrittenReadsTheSame(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"a", " ", "\n", "\r", "\t", "\x00", "\x7f", "\u0085", "\u2028", "\ufeff",
		"ü", "\xff", "'", `"`, `\`, ":", "- ", "#",
		"{", "<&>", "\x1b[0m", "null", "0", "\U0001f600",
		"\ufffe", "\u202e"}
	odd := func(least int) string {
		s := ""
		for range least + r.IntN(4) {
			s += pieces[r.IntN(len(pieces))]
		}
		return s
	}
	word := func(least int) string {
		for {
			if s := odd(least); utf8.ValidString(s) {
				return s
			}
		}
	}
	for range 5000 {
		a := &Answers{Local: map[string][]byte{word(1): []byte(odd(0))}}
		c := Command{Node: word(0), Argv: []string{"x" + word(0), word(0)},
			Results: []Result{{Exit: r.IntN(256), Stdout: []byte(odd(0)), Stderr: []byte(odd(0))}}}
		for range r.IntN(3) {
			c.Results = append(c.Results, Result{Stdout: []byte(odd(0))})
		}
		a.Commands = []Command{c, {Script: word(1), Results: c.Results[:1]}}
		a.Files = []File{{Path: "/f", Type: "file", Mode: 0o4755, Bytes: []byte(odd(0))},
			{Path: "/d", Type: "dir", Mode: 0o700}}
		a.Requests = []Request{{Method: "GET", URL: word(1), Status: 200,
			Headers: [][2]string{{word(0), word(0)}}, Body: []byte(odd(0))}}
		a.Asks = []Ask{{Key: word(1), Action: "accept", Content: []byte(`{"a":"b"}`)}}
		text := Format(a)
		again, err := Parse("a.yaml", text)
		if err != nil || !reflect.DeepEqual(normal(a), normal(again)) {
			t.Fatalf("%v\n%+v\n%+v\n%s", err, a, again, text)
		}
	}
}
