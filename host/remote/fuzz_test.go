package remote

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzTextOr64(f *testing.F) {
	f.Add([]byte("aé€😀"), 3, true)
	f.Add([]byte("\xff\x00"), 2, false)
	f.Fuzz(func(t *testing.T, b []byte, at int, cut bool) {
		if at < 0 || at > len(b) {
			at = len(b)
		}
		text, b64 := textOr64(b[:at], cut)
		back := []byte(text)
		if b64 != "" {
			var err error
			if back, err = base64.StdEncoding.DecodeString(b64); err != nil || text != "" {
				t.Fatalf("%q, %q: %v", text, b64, err)
			}
		}
		if !utf8.ValidString(text) || !bytes.HasPrefix(b[:at], back) || at-len(back) > 3 ||
			!cut && len(back) != at {
			t.Errorf("%q came back as %q", b[:at], back)
		}
		if utf8.Valid(b) && cut && b64 != "" {
			t.Errorf("text that was cut at %d became binary: %q", at, b)
		}
	})
}

// What a node says of a unit is read whole or not at all: the names are those of its own line
// Names, the id is one of them, and what is read comes out again.
func FuzzUnitNames(f *testing.F) {
	for _, s := range []string{"Id=nginx.service\nNames=nginx.service\n",
		"Names=ssh.service sshd.service\nId=ssh.service\n",
		"Id=b.service\nId=a.service\nNames=a.service\n",
		"Id=\nNames=\n", "Id=a.service\nNames=b.service a.service c.service\nX=1\n",
		"Id=a\r\nNames=a\r\n",
		"Id=a\x00\nNames=a\x00", "Id=é.service\nNames=é.service\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, said string) {
		names := readNames(said)
		if names == nil {
			return
		}
		if n := strings.Count("\n"+said, "\nId=") + strings.Count("\n"+said, "\nNames="); n != 2 {
			t.Fatalf("%q was read though it says something twice", said)
		}
		id := ""
		for _, line := range strings.Split(strings.TrimSuffix(said, "\n"), "\n") {
			switch {
			case strings.HasPrefix(line, "Id="):
				id = line[3:]
			case !strings.HasPrefix(line, "Names="):
				t.Fatalf("%q was read though it has the line %q", said, line)
			case strings.Join(strings.Fields(line[6:]), " ") != strings.Join(names, " "):
				t.Fatalf("%q was read as %q", said, names)
			}
		}
		again := readNames("Id=" + id + "\nNames=" + strings.Join(names, " ") + "\n")
		if !slices.Contains(names, id) || !slices.Equal(again, names) {
			t.Fatalf("%q: id %q, names %q, again %q", said, id, names, again)
		}
		for _, n := range names {
			if strings.ContainsAny(n, "=\n\x00 /") || n == "" {
				t.Fatalf("%q gave the name %q", said, n)
			}
		}
	})
}
