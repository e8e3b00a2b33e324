package command

import (
	"sync"
	"sync/atomic"
)

// Command is what is sent to the login shell.
type Command struct {
	Who   string // the principal whose share it takes
	Text  string
	Stdin []byte
	Max   int64 // bytes of stdout, and of stderr
}

// Ended is how a command ended.
type Ended struct {
	Exit           int
	Signal         string
	Stdout, Stderr []byte
	Truncated      bool
}

// chunks are buffers to read into: a command that says little should not cost two large ones.
var chunks = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// Output keeps the first max bytes of a stream and counts the rest. The reader never stops: a full
// pipe would stop the command.
type Output struct {
	Max  int64
	Seen *atomic.Int64 // bytes, which several outputs may share
	over atomic.Bool

	mu  sync.Mutex // guards buf, which is still written to when a leftover process holds the stream
	buf []byte
}

// Fill reads until r ends.
func (b *Output) Fill(r interface{ Read([]byte) (int, error) }) {
	pooled := chunks.Get().(*[]byte)
	defer chunks.Put(pooled)
	chunk := *pooled
	for {
		k, err := r.Read(chunk)
		if k > 0 {
			b.Seen.Add(int64(k))
			b.mu.Lock()
			room := int(min(b.Max-int64(len(b.buf)), int64(k)))
			b.buf = append(b.buf, chunk[:room]...)
			b.mu.Unlock()
			if room < k {
				b.over.Store(true)
			}
		}
		if err != nil {
			return
		}
	}
}

// Take returns what was kept so far.
func (b *Output) Take() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf[:len(b.buf):len(b.buf)]
}
