package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

const fxpClose = 4

// liar is a channel whose other end answers each request at once. The answer of each request that
// has one in lies is changed by it; kept has what was sent for each request.
type liar struct {
	ssh.Channel
	lies []byte

	mu    sync.Mutex // guards what follows
	ready *sync.Cond
	asked []byte // of the request that is being written
	out   []byte // that the client has not read
	over  bool   // nothing comes any more once out is read
	kept  []answer
}

// answer is what was sent for a request.
type answer struct {
	kind  byte
	id    uint32
	frame []byte
}

// truth is a tree of one directory with one file of twelve bytes.
func truth(kind byte, id uint32, body []byte, read *int) []byte {
	switch kind {
	case fxpOpen, fxpOpendir:
		*read = 0
		return sshtest.Handle(id, "h")
	case fxpRealpath:
		return sshtest.Names(id, "/real")
	case fxpReadlink:
		return sshtest.Names(id, "/target")
	case fxpLstat, fxpStat, fxpFstat:
		return sshtest.Attrs(id, 12, 0o100640)
	case fxpReaddir, fxpRead:
		if *read++; *read > 1 {
			return sshtest.Status(id, fxEOF)
		} else if kind == fxpRead {
			return sshtest.Data(id, []byte("twelve bytes"))
		}
		return sshtest.Names(id, "a", "b")
	}
	return sshtest.Status(id, fxOK)
}

func newLiar(lies []byte) *liar {
	l := &liar{lies: lies, out: sshtest.Raw(sshtest.Version, []byte{0, 0, 0, 3})}
	l.ready = sync.NewCond(&l.mu)
	return l
}

func (l *liar) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return 0, io.ErrClosedPipe
	}
	l.asked = append(l.asked, p...)
	for len(l.asked) >= 4 && len(l.asked) >= 4+int(binary.BigEndian.Uint32(l.asked)) {
		n := 4 + int(binary.BigEndian.Uint32(l.asked))
		if req := l.asked[4:n]; req[0] != fxpInit {
			l.answer(req[0], binary.BigEndian.Uint32(req[1:]), req[5:])
		}
		l.asked = l.asked[n:]
	}
	l.ready.Broadcast()
	return len(p), nil
}

// answer sends the truth, or the next lie: two bytes say what is done to it, and where.
func (l *liar) answer(kind byte, id uint32, body []byte) {
	reads := 0
	for _, a := range l.kept {
		if a.kind == fxpOpen || a.kind == fxpOpendir {
			reads = 0
		} else if a.kind == fxpRead || a.kind == fxpReaddir {
			reads++
		}
	}
	frame := truth(kind, id, body, &reads)
	if len(l.lies) > 2 {
		how, at, by := l.lies[0], int(l.lies[1]), l.lies[2]
		l.lies = l.lies[3:]
		switch at %= len(frame); how % 8 {
		case 1: // another byte
			frame[at] = by
		case 2: // it ends early, and says so
			frame = frame[:max(4, at)]
			binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		case 3: // more follows within it
			frame = append(frame, bytes.Repeat([]byte{by}, at)...)
			binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		case 4: // another answer
			kinds := []func() []byte{
				func() []byte { return sshtest.Status(id, uint32(at)) },
				func() []byte { return sshtest.Handle(id, strings.Repeat("h", at*4)) },
				func() []byte { return sshtest.Data(id, bytes.Repeat([]byte{by}, at)) },
				func() []byte { return sshtest.Attrs(id, uint64(at)<<by%64, uint32(by)<<8) },
				func() []byte { return sshtest.Names(id, strings.Repeat("../", at), "x") },
				func() []byte { return sshtest.Names(id) },
			}
			frame = kinds[int(by)%len(kinds)]()
		case 5: // a body from the input
			n := min(at, len(l.lies))
			frame = sshtest.Raw(frame[4], slices.Concat(binary.BigEndian.AppendUint32(nil, id), l.lies[:n]))
			l.lies = l.lies[n:]
		case 6: // twice
			frame = slices.Concat(frame, frame)
		case 7: // the stream goes on as the input says
			frame, l.lies = slices.Concat(frame[:at], l.lies), nil
		}
	}
	l.kept = append(l.kept, answer{kind, id, frame})
	l.out = append(l.out, frame...)
	// Where it is not one whole packet for this request, the client would wait for the rest.
	l.over = l.over || len(frame) < 9 || int(binary.BigEndian.Uint32(frame)) != len(frame)-4 ||
		binary.BigEndian.Uint32(frame[5:]) != id
}

func (l *liar) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.out) == 0 {
		if l.over {
			return 0, io.EOF
		}
		l.ready.Wait()
	}
	n := copy(p, l.out)
	l.out = l.out[n:]
	return n, nil
}

func (l *liar) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over, l.out = true, nil
	l.ready.Broadcast()
	return nil
}

// words reads the parts of a packet as the draft has them. ok is false once one is missing.
type words struct {
	b  []byte
	ok bool
}

func (w *words) take(n int) []byte {
	if n < 0 || n > len(w.b) {
		w.ok, w.b = false, nil
		return make([]byte, 8)
	}
	b := w.b[:n]
	w.b = w.b[n:]
	return b
}

func (w *words) u32() uint32 { return binary.BigEndian.Uint32(w.take(4)) }

func (w *words) text() string { return string(w.take(int(w.u32()))) }

// attrs reads attributes: draft-ietf-secsh-filexfer-02, section 5.
func (w *words) attrs() (size uint64, mode uint32) {
	flags := w.u32()
	if flags&1 != 0 {
		size = binary.BigEndian.Uint64(w.take(8))
	}
	if flags&2 != 0 {
		w.take(8)
	}
	if flags&4 != 0 {
		mode = w.u32()
	}
	if flags&8 != 0 {
		w.take(8)
	}
	if flags&(1<<31) != 0 {
		for range min(w.u32(), 1<<16) {
			w.text()
			w.text()
		}
	}
	return size, mode
}

// says is what the answers of the requests of one operation say, or false where they do not allow
// it to succeed.
func says(op int, kept []answer) (string, bool) {
	text, told := "", false
	for _, a := range kept {
		if a.kind == fxpOpen || a.kind == fxpOpendir || a.kind == fxpFstat || a.kind == fxpClose {
			continue // nothing of it is told; how a file is closed is not asked
		}
		if len(a.frame) < 9 {
			return "", false
		}
		w := &words{a.frame[9:], true}
		kind := a.frame[4]
		switch a.kind {
		case fxpLstat, fxpStat:
			size, mode := w.attrs()
			text, told = fmt.Sprint(size, mode&0o7777), kind == fxpAttrs
		case fxpRealpath, fxpReadlink:
			told = w.u32() == 1 && kind == fxpName
			text = w.text()
		case fxpReaddir:
			if kind == fxpStatus {
				told = w.u32() == fxEOF
				break
			}
			for range min(w.u32(), 1<<16) {
				// The library leaves out the directory itself, and cuts a name down to its last part.
				if name := w.text(); name != "." && name != ".." {
					text += path.Base(name) + "\n"
				}
				w.text()
				w.attrs()
			}
			w.ok = w.ok && kind == fxpName
		case fxpRead:
			if kind == fxpStatus {
				told = w.u32() == fxEOF
				break
			}
			text += w.text()
			w.ok = w.ok && kind == fxpData
		}
		if !w.ok {
			return "", false
		}
	}
	return text, told
}

// operations are what the host asks of a node's files, and what comes of it.
var operations = []func(c *sftp.Client) (string, error){
	func(c *sftp.Client) (string, error) {
		info, err := c.Lstat("/f")
		if err != nil {
			return "", err
		}
		return fmt.Sprint(uint64(info.Size()), info.Sys().(*sftp.FileStat).Mode&0o7777), nil
	},
	func(c *sftp.Client) (string, error) { return c.RealPath("/f") },
	func(c *sftp.Client) (string, error) { return c.ReadLink("/f") },
	func(c *sftp.Client) (text string, err error) {
		all, err := c.ReadDir("/")
		for _, e := range all {
			text += e.Name() + "\n"
		}
		return text, err
	},
	func(c *sftp.Client) (string, error) {
		f, err := c.Open("/f")
		if err != nil {
			return "", err
		}
		data, err := io.ReadAll(io.LimitReader(f, 1<<16))
		return string(data), errors.Join(err, f.Close())
	},
	func(c *sftp.Client) (string, error) { return "", c.Remove("/f") },
}

// FuzzAnswers holds what the host reads of SFTP answers to another reader of the draft. Whatever a
// node sends, each operation ends, and succeeds only with what the answers to its own requests say;
// and where the node tells the truth, it succeeds.
func FuzzAnswers(f *testing.F) {
	for op := range operations {
		f.Add(uint8(op), []byte{})
		for how := byte(1); how < 8; how++ {
			f.Add(uint8(op), []byte{how, 9, 5, 1, 1, 1, 1, 1, 1, 1, 1})
			f.Add(uint8(op), []byte{0, 0, 0, how, 12, 4, 'x', 'y', 'z', 0, 0, 0, 1})
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, lies []byte) {
		op := int(which) % len(operations)
		l := newLiar(lies)
		r := &referee{Channel: l, requests: map[uint32]request{}}
		c, err := sftp.NewClientPipe(r, r, sftp.UseConcurrentReads(true), sftp.UseFstat(true))
		if err != nil {
			t.Fatal(err)
		}
		type ended struct {
			got string
			err error
		}
		done := make(chan ended, 1)
		go func() {
			got, err := operations[op](c)
			done <- ended{got, err}
		}()
		var e ended
		select {
		case e = <-done:
		case <-time.After(20 * time.Second):
			t.Fatal("the operation does not end")
		}
		l.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(lies) < 3 && e.err != nil {
			t.Fatalf("the node told the truth: %v", e.err)
		}
		if e.err != nil {
			return
		}
		if op == len(operations)-1 {
			// The library asks for the removal of a directory where that of a file fails.
			if a := l.kept[len(l.kept)-1].frame; len(a) < 13 || a[4] != fxpStatus || binary.BigEndian.Uint32(a[9:]) != fxOK {
				t.Fatalf("removed, with the answer %x", a)
			}
			return
		}
		if want, told := says(op, l.kept); !told || e.got != want {
			t.Fatalf("%q, where the node said %q, which is an answer: %v\n%x", e.got, want, told, l.kept)
		}
	})
}
