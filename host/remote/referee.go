package remote

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
	keptHead  = 300 // bytes of a packet that are examined: the longest handle and what surrounds it
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
	moved    atomic.Int64 // when a packet last moved, in Unix nanoseconds
	cause    atomic.Pointer[error]
	listing  atomic.Pointer[listing]
	out, in  framer
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

func (r *referee) Write(p []byte) (int, error) {
	if err := r.out.feed(p, r.asked); err != nil {
		return 0, err
	}
	k, err := r.Channel.Write(p)
	r.touch()
	return k, err
}

func (r *referee) Read(p []byte) (int, error) {
	k, err := r.Channel.Read(p)
	r.touch()
	if wrong := r.in.feed(p[:k], r.answered); wrong != nil {
		r.cause.CompareAndSwap(nil, &wrong)
		r.Channel.Close()
		return 0, wrong
	}
	return k, err
}

// asked notes a request of the library.
func (r *referee) asked(head []byte, _ uint32) error {
	if len(head) < 5 || head[0] == fxpInit {
		return nil
	}
	q := request{kind: head[0], answer: answers[head[0]]}
	switch body := head[5:]; q.kind {
	case fxpRead: // handle, offset, length
		if _, rest, ok := cutString(body); ok && len(rest) >= 12 {
			q.want = binary.BigEndian.Uint32(rest[8:])
		}
	case fxpExtended:
		if name, _, _ := cutString(body); name == "statvfs@openssh.com" {
			q.answer = fxpReply
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests[binary.BigEndian.Uint32(head[1:])] = q
	return nil
}

// answered holds an answer of the node to its request. head is the packet without its length, or
// the start of it; size is how long it is.
func (r *referee) answered(head []byte, size uint32) error {
	if !r.greeted {
		if r.greeted = size >= 5 && head[0] == fxpVersion; !r.greeted {
			return broke("it began with a packet of %d bytes instead of its version", size)
		}
		return nil
	}
	if size < 9 {
		return broke("a packet of %d bytes", size)
	}
	kind, id, body := head[0], binary.BigEndian.Uint32(head[1:]), head[5:]
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

// framer splits a stream into packets.
type framer struct {
	head []byte // length and start of the packet that is arriving
	left int64  // bytes of it that are not examined
}

// feed calls packet with the start of each packet as soon as it is there.
func (f *framer) feed(b []byte, packet func(head []byte, size uint32) error) error {
	for len(b) > 0 {
		if f.left > 0 {
			part := min(f.left, int64(len(b)))
			f.left, b = f.left-part, b[part:]
			continue
		}
		need := 4
		if len(f.head) >= 4 {
			need += int(min(binary.BigEndian.Uint32(f.head), keptHead))
		}
		part := min(need-len(f.head), len(b))
		f.head, b = append(f.head, b[:part]...), b[part:]
		if len(f.head) < 4 || len(f.head) < need {
			continue
		}
		size := binary.BigEndian.Uint32(f.head)
		if size == 0 || size > maxPacket {
			return broke("a packet of %d bytes; it starts with %q", size, f.head)
		}
		if need == 4 {
			continue
		}
		head := slices.Clone(f.head[4:])
		f.head, f.left = f.head[:0], int64(size)-int64(len(head))
		if err := packet(head, size); err != nil {
			return err
		}
	}
	return nil
}
