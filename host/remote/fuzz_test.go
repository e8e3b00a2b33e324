package remote

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"path"
	"path/filepath"
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

func FuzzPaths(f *testing.F) {
	for _, p := range []string{"/", "/a/b", "a", "../a", "/a/../b", "//a", "/a/", "", ".", "a\\b", "a\x00", "a/" + partialPrefix + "x"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if q, err := cleanRemote(p); err == nil &&
			(q != p || path.Clean(p) != p || p[0] != '/' || strings.Contains(p, "\x00") || strings.Contains(p+"/", "/../")) {
			t.Errorf("node path %q was accepted", p)
		}
		if cleanLocal(p) == nil &&
			(filepath.Join("/ws", p) != "/ws/"+p || strings.ContainsAny(p, "\x00\n\\")) {
			t.Errorf("local path %q was accepted", p)
		}
	})
}

// pipe is a channel of which only reading is used.
// However a stream of packets is cut into reads, the referee sees the same packets, and lets no
// byte pass after one that is wrong.
func FuzzFramer(f *testing.F) {
	f.Add([]byte{104, 3, 5, 104, 0}, 2)
	f.Add([]byte{1, 255, 104, 9}, 7)
	f.Fuzz(func(t *testing.T, plan []byte, chunk int) { // kinds and lengths of packets, in turns
		var stream []byte
		var want [][2]int
		for i := 0; i+1 < len(plan); i += 2 {
			size := 1 + int(plan[i+1])*3
			want = append(want, [2]int{int(plan[i]), size})
			stream = binary.BigEndian.AppendUint32(stream, uint32(size))
			stream = append(append(stream, plan[i]), make([]byte, size-1)...)
		}
		var got [][2]int
		var fr framer
		for part := range slices.Chunk(stream, 1+(chunk&0xff)) {
			if err := fr.feed(part, func(head []byte, size uint32) error {
				if len(head) != min(int(size), keptHead) {
					t.Errorf("a head of %d bytes of a packet of %d", len(head), size)
				}
				got = append(got, [2]int{int(head[0]), int(size)})
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("saw %v, want %v", got, want)
		}
	})
}
