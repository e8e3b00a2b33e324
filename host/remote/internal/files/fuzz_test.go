package files

import (
	"bytes"
	"io"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"golang.org/x/crypto/ssh"
)

func FuzzPaths(f *testing.F) {
	for _, p := range []string{"/", "/a/b", "a", "../a", "/a/../b", "//a", "/a/", "", ".", "a\\b",
		"a\x00", "a/" + PartialPrefix + "x"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if q, err := cleanRemote(p); err == nil &&
			(q != p || path.Clean(p) != p || p[0] != '/' || strings.Contains(p, "\x00") ||
				strings.Contains(p+"/", "/../")) {
			t.Errorf("node path %q was accepted", p)
		}
		if cleanLocal(p) == nil &&
			(filepath.Join("/ws", p) != "/ws/"+p || strings.ContainsAny(p, "\x00\n\\")) {
			t.Errorf("local path %q was accepted", p)
		}
	})
}

// pipe is a channel of which only reading is used, in chunks.
type pipe struct {
	ssh.Channel
	left  []byte
	chunk int
}

func (p *pipe) Close() error { return nil }

func (p *pipe) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	k := copy(b, p.left[:min(p.chunk, len(p.left))])
	p.left = p.left[k:]
	return k, nil
}

// However a stream of packets is cut into reads, the library gets all of it up to the first packet
// that is wrong, and no byte of that one.
func FuzzReferee(f *testing.F) {
	f.Add([]byte{1, 3, 5, 0, 9}, 2)
	f.Add([]byte{255, 255}, 7)
	f.Fuzz(func(t *testing.T, lengths []byte, chunk int) { // of answers; 0 is a wrong one
		r := &referee{requests: map[uint32]request{}}
		stream := sshtest.Raw(sshtest.Version, []byte{0, 0, 0, 3})
		good := len(stream)
		for i, n := range lengths {
			if n > 0 {
				r.requests[uint32(i)] = request{kind: fxpRead, answer: fxpData, want: uint32(n)}
			}
			stream = append(stream, sshtest.Data(uint32(i), make([]byte, n))...)
			if len(r.requests) == i+1 {
				good = len(stream)
			}
		}
		r.Channel = &pipe{left: stream, chunk: 1 + (chunk & 0xff)}
		got, err := io.ReadAll(r)
		if !bytes.Equal(got, stream[:good]) || (err == nil) != (good == len(stream)) {
			t.Errorf("%d bytes of %d passed, want %d: %v", len(got), len(stream), good, err)
		}
	})
}
