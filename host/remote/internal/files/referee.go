package files

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// Packet types and status codes of SFTP version 3 (draft-ietf-secsh-filexfer-02, sections 3 and 7).
const (
	fxpInit     = 1
	fxpVersion  = 2
	fxpOpen     = 3
	fxpRead     = 5
	fxpLstat    = 7
	fxpFstat    = 8
	fxpOpendir  = 11
	fxpReaddir  = 12
	fxpRealpath = 16
	fxpStat     = 17
	fxpReadlink = 19
	fxpStatus   = 101
	fxpHandle   = 102
	fxpData     = 103
	fxpName     = 104
	fxpAttrs    = 105
	fxpExtended = 200
	fxpReply    = 201 // SSH_FXP_EXTENDED_REPLY

	fxOK, fxEOF, fxNoConnection, fxConnectionLost = 0, 1, 6, 7

	maxPacket = 256 << 10
)

// answers is what a request that succeeds is answered with. A request that is not listed is
// answered with a status.
var answers = map[byte]byte{
	fxpOpen: fxpHandle, fxpOpendir: fxpHandle, fxpRead: fxpData, fxpReaddir: fxpName,
	fxpRealpath: fxpName, fxpReadlink: fxpName, fxpLstat: fxpAttrs, fxpFstat: fxpAttrs,
	fxpStat: fxpAttrs,
}

var errProtocol = errors.New("the SFTP server broke the protocol")

func broke(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errProtocol}, args...)...)
}

// referee stands between the SFTP library and its channel. The library takes some wrong answers for
// success, such as "OK" instead of a file handle; referee ends the session at the first answer that
// the protocol does not allow for its request, before the library gets it. It also notes when bytes
// last moved and cuts off listings without end. Write is not for concurrent use, nor is Read.
type referee struct {
	ssh.Channel
	moved    atomic.Int64 // when bytes last moved, in Unix nanoseconds
	cause    atomic.Pointer[error]
	listing  atomic.Pointer[listing]
	unsent   int        // bytes that are missing of the packet that is being written
	buf      []byte     // of the latest packet that was read
	unread   []byte     // what the library has not got of it
	greeted  bool       // VERSION came
	mu       sync.Mutex // guards requests
	requests map[uint32]request
}

// request is one that has no answer yet. want is the number of bytes that a READ asks for.
type request struct {
	kind, answer byte
	want         uint32
}

// listing is the allowance of one directory listing. cut is called when it is used up.
type listing struct {
	left int64
	cut  func()
}

func (r *referee) touch() { r.moved.Store(time.Now().UnixNano()) }

// Write relies on the library to write all of a packet at once, but for the data of a WRITE, which
// come after the rest of it.
func (r *referee) Write(p []byte) (int, error) {
	if r.unsent == 0 && len(p) >= 9 {
		r.unsent = 4 + int(binary.BigEndian.Uint32(p))
		r.asked(p[4], binary.BigEndian.Uint32(p[5:]), p[9:])
	}
	k, err := r.Channel.Write(p)
	r.unsent -= k
	r.touch()
	return k, err
}

// asked notes a request of the library.
func (r *referee) asked(kind byte, id uint32, body []byte) {
	if kind == fxpInit {
		return
	}
	q := request{kind: kind, answer: answers[kind]}
	switch name, rest, ok := cutString(body); {
	case kind == fxpRead && ok && len(rest) >= 12: // handle, offset, length
		q.want = binary.BigEndian.Uint32(rest[8:])
	case kind == fxpExtended && name == "statvfs@openssh.com":
		q.answer = fxpReply
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests[id] = q
}

func (r *referee) Read(p []byte) (int, error) {
	if len(r.unread) == 0 {
		err := r.next()
		if errors.Is(err, errProtocol) {
			r.cause.CompareAndSwap(nil, &err)
			r.Channel.Close()
		}
		if err != nil {
			return 0, err
		}
		r.unread = r.buf
	}
	k := copy(p, r.unread)
	r.unread = r.unread[k:]
	return k, nil
}

// next reads a packet into buf, with its length, and holds it to its request.
func (r *referee) next() error {
	r.buf = append(r.buf[:0], 0, 0, 0, 0)
	if err := r.fill(r.buf); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(r.buf)
	if size == 0 || size > maxPacket {
		return broke("a packet of %d bytes; it starts with %q", size, r.buf)
	}
	r.buf = slices.Grow(r.buf, int(size))[:4+size]
	if err := r.fill(r.buf[4:]); err != nil {
		return err
	}
	return r.answered(r.buf[4:])
}

// fill reads len(b) bytes, and notes that some moved whenever they did.
func (r *referee) fill(b []byte) error {
	for len(b) > 0 {
		k, err := r.Channel.Read(b)
		r.touch()
		if b = b[k:]; err != nil && len(b) > 0 {
			return err
		}
	}
	return nil
}

// answered holds an answer of the node to its request. p is the packet without its length.
func (r *referee) answered(p []byte) error {
	size := uint32(len(p))
	if !r.greeted {
		if r.greeted = size >= 5 && p[0] == fxpVersion; !r.greeted {
			return broke("it began with a packet of %d bytes instead of its version", size)
		}
		return nil
	}
	if size < 9 {
		return broke("a packet of %d bytes", size)
	}
	kind, id, body := p[0], binary.BigEndian.Uint32(p[1:]), p[5:]
	r.mu.Lock()
	q, known := r.requests[id]
	delete(r.requests, id)
	r.mu.Unlock()
	if !known {
		return broke("an answer to request %d, which was not made or has its answer", id)
	}
	first := binary.BigEndian.Uint32(body) // a code, a length or a count
	switch {
	case kind == fxpStatus:
		return q.status(first)
	case kind != q.answer:
		return broke("an answer of type %d to a request of type %d", kind, q.kind)
	case kind == fxpHandle && first > 256:
		return broke("a handle of %d bytes", first)
	case kind == fxpData && (first == 0 || first > q.want || first > size-9):
		return broke("%d bytes of data in a packet of %d, where %d were asked for",
			first, size, q.want)
	case kind == fxpName && q.kind != fxpReaddir && first != 1:
		return broke("%d names for one path", first)
	}
	if l := r.listing.Load(); l != nil && q.kind == fxpReaddir {
		if l.left -= int64(size) + 4; l.left < 0 {
			l.cut()
		}
	}
	return nil
}

// status holds the code of a status to its request: OK is no answer to a request that asks for
// something, the end of a file is one of READ and READDIR only, and section 7 keeps two codes for
// the client's own use.
func (q request) status(code uint32) error {
	switch {
	case code == fxOK && q.answer != 0,
		code == fxEOF && q.kind != fxpRead && q.kind != fxpReaddir,
		code == fxNoConnection, code == fxConnectionLost:
		return broke("status %d to a request of type %d", code, q.kind)
	}
	return nil
}

func cutString(b []byte) (s string, rest []byte, ok bool) {
	if len(b) < 4 || uint32(len(b)-4) < binary.BigEndian.Uint32(b) {
		return "", nil, false
	}
	n := 4 + binary.BigEndian.Uint32(b)
	return string(b[4:n]), b[n:], true
}
