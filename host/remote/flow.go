package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/remote/internal/files"
)

// flow is the bytes of one transfer, which are read or written through it. It digests them, stops
// with its context and at its limit, and reports the progress at most four times a second.
type flow struct {
	ctx   context.Context // of one transfer, which has no other way to hand it down
	from  io.Reader       // or
	to    io.Writer
	limit int64
	total int64                                     // that are expected
	tell  func(done, total float64, message string) // may be nil

	done int64
	sum  hash.Hash
	next time.Time // to tell
	err  error     // that it stopped with, which the SFTP library does not always pass on
}

// flow returns the flow of a transfer of this visit.
func (v *visit) flow(limit, total int64) *flow {
	return &flow{ctx: v.ctx, limit: limit, total: total, tell: v.job.q.Progress, sum: sha256.New()}
}

func (f *flow) Read(p []byte) (int, error) {
	n, err := f.from.Read(p)
	if err != nil && err != io.EOF {
		f.err = files.Error("reading", "local file", err)
	} else if f.note(p[:n]); f.err == nil {
		return n, err
	}
	return 0, f.err
}

func (f *flow) Write(p []byte) (int, error) {
	if f.note(p); f.err != nil {
		return 0, f.err
	}
	if _, err := f.to.Write(p); err != nil {
		f.err = files.Error("writing", "local file", err)
		return 0, f.err
	}
	return len(p), nil
}

// note takes account of bytes, or sets err.
func (f *flow) note(p []byte) {
	f.done += int64(len(p))
	if f.err = f.ctx.Err(); f.err == nil && f.done > f.limit {
		f.err = effect.Failed("too_large", "the file is larger than the %d bytes that are allowed",
			f.limit)
	}
	if f.err != nil {
		return
	}
	f.sum.Write(p)
	if now := time.Now(); f.tell != nil && now.After(f.next) {
		f.next = now.Add(250 * time.Millisecond)
		f.tell(float64(f.done), float64(max(f.total, f.done)), "bytes moved")
	}
}

// digest is the SHA-256 of the bytes so far, in hexadecimal digits.
func (f *flow) digest() string { return hex.EncodeToString(f.sum.Sum(nil)) }
