package remote

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/pkg/sftp"
)

// open opens a regular file for reading, by its decided real path, and makes sure that what was
// opened is what stands at that path. SFTP has no inode numbers; type, mode and owner have to do.
func (f *files) open(decided gate.FileFacts) (*sftp.File, error) {
	real := decided.RealPath
	switch {
	case !decided.Exists:
		return nil, fs.ErrNotExist
	case decided.Type != "file": // opening a FIFO would stop the node's SFTP server
		return nil, failed("not_a_file", "%q is a %s, not a regular file", real, decided.Type)
	}
	in, err := f.openFile(real, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	opened, err := fstat(in)
	if err == nil {
		var now string
		var info fs.FileInfo
		if now, info, err = f.resolve(real); err == nil && (now != real || info == nil ||
			kind(info) != kind(opened) || info.Mode() != opened.Mode() ||
			owner(info) != owner(opened)) {
			err = failed("changed", "%q was replaced while it was opened; nothing was done", real)
		}
	}
	if err != nil {
		in.Close()
		return nil, err
	}
	return in, nil
}

// openFile never returns neither a file nor an error.
func (f *files) openFile(name string, flags int) (*sftp.File, error) {
	file, err := f.OpenFile(name, flags)
	if err == nil && file == nil {
		err = broke("no file and no error")
	}
	return file, err
}

// fstat never returns neither a description nor an error.
func fstat(file *sftp.File) (fs.FileInfo, error) {
	info, err := file.Stat()
	if err == nil && info == nil {
		err = broke("no attributes and no error")
	}
	return info, err
}

// whole makes sure that n bytes from the start of a file are all of it, or all up to limit. Only
// the kernel's own files are shorter or longer than they say.
func whole(in *sftp.File, real string, n, limit int64) error {
	info, err := fstat(in)
	if err != nil {
		return err
	}
	size := info.Size()
	if n >= min(size, limit) && n <= size || strings.HasPrefix(real, "/sys/") ||
		strings.HasPrefix(real, "/proc/") {
		return nil
	}
	return failed("changed", "the node sent %d bytes of %q, which has %d: the file was changed "+
		"meanwhile, or the SFTP server answers wrongly", n, real, size)
}

func (f *files) read(decided gate.FileFacts, limit int64) (abi.ReadResponse, error) {
	in, err := f.open(decided)
	if err != nil {
		return abi.ReadResponse{}, err
	}
	defer in.Close()
	buf := make([]byte, limit+1)
	k, err := in.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return abi.ReadResponse{}, err
	}
	if err := whole(in, decided.RealPath, int64(k), limit); err != nil {
		return abi.ReadResponse{}, err
	}
	v := abi.ReadResponse{Bytes: min(int64(k), limit), EOF: int64(k) <= limit}
	v.Text, v.B64 = textOr64(buf[:v.Bytes], false)
	return v, nil
}

// afterCancel is what a read may take to notice that its call has ended.
const afterCancel = 2 * time.Second

// get copies a file to w, at most limit bytes, and returns its length and SHA-256.
func (f *files) get(
	ctx context.Context, decided gate.FileFacts, w io.Writer, limit int64, tell *teller,
) (n int64, digest string, err error) {
	in, err := f.open(decided)
	if err != nil {
		return 0, "", err
	}
	defer in.Close()
	tell.done, tell.total = 0, decided.Bytes // it may be the second attempt
	to := &meter{ctx: ctx, w: w, sum: sha256.New(), left: limit, limit: limit, tell: tell}
	// The meter stops what ends in time. A server that does not answer never gets to it: its
	// session is closed.
	finished := make(chan struct{})
	defer close(finished)
	defer context.AfterFunc(ctx, func() {
		select {
		case <-finished:
		case <-time.After(afterCancel):
			f.Client.Close()
		}
	})()
	n, err = in.WriteTo(to)
	if err = cmp.Or(to.err, err); err == nil {
		err = whole(in, decided.RealPath, n, n+1) // limit was not reached
	}
	return n, hex.EncodeToString(to.sum.Sum(nil)), err
}

// meter passes at most limit bytes on, digests them and stops with ctx.
type meter struct {
	ctx         context.Context // of one transfer, which has no other way to hand it down
	w           io.Writer
	sum         hash.Hash
	left, limit int64
	tell        *teller
	err         error
}

func (m *meter) Write(p []byte) (int, error) {
	if m.ctx.Err() != nil {
		m.err = m.ctx.Err()
	} else if m.left -= int64(len(p)); m.left < 0 {
		m.err = failed("too_large", "the file is larger than the %d bytes that are allowed",
			m.limit)
	} else if _, err := m.w.Write(p); err != nil {
		m.err = fileError("writing", "local file", err)
	}
	if m.err != nil {
		return 0, m.err
	}
	m.sum.Write(p)
	m.tell.moved(len(p))
	return len(p), nil
}

// teller reports the progress of a transfer, at most four times a second.
type teller struct {
	to          func(done, total float64, message string) // may be nil
	what        string
	done, total int64
	next        time.Time
}

func (t *teller) moved(n int) {
	t.done += int64(n)
	if now := time.Now(); t.to != nil && now.After(t.next) {
		t.next = now.Add(250 * time.Millisecond)
		t.to(float64(t.done), float64(max(t.total, t.done)), t.what)
	}
}
