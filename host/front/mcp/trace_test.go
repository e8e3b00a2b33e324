package mcp

import "testing"

const span = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"

func TestATraceparentIsThatOfW3COrNone(t *testing.T) {
	for text, want := range map[string]string{
		"00-" + span + "-01":       "00-" + span + "-01",
		"00-" + span + "-00":       "00-" + span + "-00",
		"cc-" + span + "-03-later": "00-" + span + "-03", // a version of the future
		"cc-" + span + "-03":       "00-" + span + "-03",
		"00-" + span + "-01-later": "",
		"ff-" + span + "-01":       "",
		"cc-" + span + "-03.later": "",
		"00-" + span:               "",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": "",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01": "",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01": "",
		" 00-" + span + "-01":  "",
		"00-" + span + "-01\n": "",
		"":                     "",
	} {
		if got := parent(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Whatever a client writes, the journal gets a valid traceparent of version 00, or nothing.
func FuzzTraceparent(f *testing.F) {
	f.Add("00-" + span + "-01")
	f.Add("cc-" + span + "-03-x")
	f.Fuzz(func(t *testing.T, text string) {
		got := parent(text)
		if got == "" {
			return
		}
		if len(got) != 55 || parent(got) != got || got[3:55] != text[3:55] {
			t.Errorf("%q: %q", text, got)
		}
	})
}
