package remote

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"
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
type pipe struct {
	ssh.Channel
	r *bytes.Reader
}

func (p pipe) Read(b []byte) (int, error) { return p.r.Read(b) }

func FuzzWireCountsListings(f *testing.F) {
	f.Add([]byte{104, 3, 5, 104, 0}, 2)
	f.Add([]byte{1, 255, 104, 9}, 7)
	f.Fuzz(func(t *testing.T, plan []byte, chunk int) { // kinds and lengths of packets, in turns
		var stream []byte
		var want int64
		for i := 0; i+1 < len(plan); i += 2 {
			stream = append(
				append(binary.BigEndian.AppendUint32(stream, uint32(plan[i+1])+1), plan[i]),
				make([]byte, plan[i+1])...)
			if plan[i] == 104 {
				want += int64(plan[i+1])
			}
		}
		files := &files{}
		w := &wire{Channel: pipe{r: bytes.NewReader(stream)}, f: files}
		buf := make([]byte, 1+(chunk&0xff))
		for {
			if _, err := w.Read(buf); err != nil {
				break
			}
		}
		if got := files.names.Load(); got != want {
			t.Errorf("counted %d bytes of listings, want %d", got, want)
		}
	})
}
