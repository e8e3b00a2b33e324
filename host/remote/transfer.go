package remote

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/pkg/sftp"
)

// ReadResult is the response of sftp_read. EOF says that the file ended within max_bytes.
type ReadResult struct {
	Text  string `json:"text,omitempty"`
	B64   string `json:"b64,omitempty"`
	Bytes int64  `json:"bytes"`
	EOF   bool   `json:"eof"`
}

// WriteResult is the response of sftp_write, sftp_put and sftp_get.
type WriteResult struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // in hexadecimal
	Local  string `json:"local,omitempty"`
}

func (w WriteResult) result() gate.Result {
	return gate.Result{Value: w, Bytes: w.Bytes, SHA256: w.SHA256}
}

// open opens a regular file for reading, by its decided real path, and makes sure that what was
// opened is what stands at that path.
func (f *files) open(decided gate.FileFacts) (*sftp.File, error) {
	real := decided.RealPath
	switch {
	case !decided.Exists:
		return nil, fs.ErrNotExist
	case decided.Type != "file": // opening a FIFO would stop the node's SFTP server
		return nil, failed("not_a_file", "%q is a %s, not a regular file", real, decided.Type)
	}
	in, err := f.OpenFile(real, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	opened, err := in.Stat()
	if err == nil {
		err = f.unmoved(real, opened)
	}
	if err != nil {
		in.Close()
		return nil, err
	}
	return in, nil
}

// unmoved looks again at a path: it must still be its own real path, and hold what opened is. SFTP
// knows no inode numbers; owner and mode have to do.
func (f *files) unmoved(real string, opened fs.FileInfo) error {
	again, info, err := f.resolve(real)
	if err != nil {
		return err
	}
	if again != real || info == nil || kind(info) != kind(opened) || info.Mode() != opened.Mode() ||
		owner(info) != owner(opened) {
		return failed("changed", "%q was replaced while it was opened; nothing was done", real)
	}
	return nil
}

func owner(i fs.FileInfo) [2]uint32 {
	if s, is := i.Sys().(*sftp.FileStat); is {
		return [2]uint32{s.UID, s.GID}
	}
	return [2]uint32{}
}

func (f *files) read(decided gate.FileFacts, limit int64) (ReadResult, error) {
	in, err := f.open(decided)
	if err != nil {
		return ReadResult{}, err
	}
	defer in.Close()
	buf := make([]byte, limit+1)
	k, err := in.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return ReadResult{}, err
	}
	v := ReadResult{Bytes: min(int64(k), limit), EOF: int64(k) <= limit}
	v.Text, v.B64 = textOr64(buf[:v.Bytes], false)
	return v, nil
}

// afterCancel is what a read may take to notice that its call has ended.
const afterCancel = 2 * time.Second

// get copies a file to w, at most limit bytes.
func (f *files) get(
	ctx context.Context,
	decided gate.FileFacts,
	w io.Writer,
	limit int64,
	tell *teller,
) (WriteResult, error) {
	in, err := f.open(decided)
	if err != nil {
		return WriteResult{}, err
	}
	defer in.Close()
	tell.done, tell.total = 0, decided.Bytes // it may be the second attempt
	to := &meter{ctx: ctx, w: w, sum: sha256.New(), left: limit, limit: limit, tell: tell}
	// The meter stops what ends in time. A server that answers with nothing for ever never comes to
	// it: its session is closed.
	finished := make(chan struct{})
	defer close(finished)
	defer context.AfterFunc(ctx, func() {
		select {
		case <-finished:
		case <-time.After(afterCancel):
			f.Client.Close()
		}
	})()
	n, err := in.WriteTo(to)
	if err = cmp.Or(to.err, err); err != nil {
		return WriteResult{}, err
	}
	// A server that answers with less than was asked for would leave gaps. Small files are read one
	// piece after the other; some of /sys are shorter than they say.
	if info, err := in.Stat(); err != nil {
		return WriteResult{}, err
	} else if n < info.Size() && info.Size() > 32<<10 {
		return WriteResult{}, failed("changed", "the node gave %d of the %d bytes of %q; it was written to meanwhile, or its SFTP server answers too short", n, info.Size(), decided.RealPath)
	}
	return WriteResult{Bytes: n, SHA256: hex.EncodeToString(to.sum.Sum(nil))}, nil
}

// meter writes at most limit bytes on, digests them and stops with ctx.
type meter struct {
	ctx         context.Context // of one transfer, which has no other way to hand it down
	w           io.Writer
	sum         hash.Hash
	left, limit int64
	tell        *teller
	err         error
}

// teller tells the client of a transfer's progress, four times a second at most.
type teller struct {
	to          func(done, total float64, message string) // nil for nobody
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

func (m *meter) Write(p []byte) (int, error) {
	if m.ctx.Err() != nil {
		m.err = m.ctx.Err()
	} else if m.left -= int64(len(p)); m.left < 0 {
		m.err = failed("too_large", "the file is larger than the %d bytes that are allowed here", m.limit)
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

// upload is a file that is to be written on a node.
type upload struct {
	asked   string // the path as the plugin wrote it
	decided gate.FileFacts
	src     io.Reader
	size    int64
	// octal; "" keeps the mode of a file that is replaced, and is 0600 for a new one
	mode      string
	overwrite bool
	tell      *teller
	digest    string // that the bytes must have, as [Remote.Digests] gives it; "" for any
}

// put writes a file beside its place, in a directory that only the login user can enter, makes sure
// that all of it arrived, and then renames it. Until p allowed the rename, nothing at the place has
// changed.
func (f *files) put(ctx context.Context, p *pledge, u upload) (w WriteResult, err error) {
	now, info, err := f.again(u.asked, true, &u.decided)
	switch {
	case err != nil:
		return w, err
	case now.Exists && now.Type != "file":
		return w, failed(
			"not_a_file",
			"%q is a %s; only a regular file can be replaced",
			now.RealPath,
			now.Type,
		)
	case now.Exists && !u.overwrite:
		return w, fs.ErrExist
	}
	p.once.Store(true) // the source is read from here on
	mode := fs.FileMode(0o600)
	if u.mode != "" {
		bits, err := strconv.ParseUint(u.mode, 8, 32)
		if err != nil || bits > 0o777 {
			return w, failed(
				"bad_input",
				"mode %q must be octal permission bits, such as 0644",
				u.mode,
			)
		}
		mode = fs.FileMode(bits)
	} else if now.Exists {
		mode = info.Mode().Perm()
	}
	dir, err := f.private(path.Join(path.Dir(now.RealPath), partialPrefix+rand.Text()))
	if err != nil {
		return w, err
	}
	partial := path.Join(dir, "data")
	defer f.discard(dir)
	if w, err = f.fill(ctx, partial, u, mode, info); err != nil {
		return w, f.full(dir, u.size, err)
	}
	if _, _, err := f.again(u.asked, true, &u.decided); err != nil {
		return w, err
	}
	if !p.send() {
		return w, ctx.Err()
	}
	if u.overwrite {
		err = f.PosixRename(partial, now.RealPath)
	} else if err = f.Rename(partial, now.RealPath); err != nil {
		// refuses to replace, but says only "Failure"
		if there, lerr := f.Lstat(now.RealPath); lerr == nil && there != nil {
			err = fs.ErrExist
		}
	}
	if err != nil {
		return w, err
	}
	if real, there, err := f.resolve(u.asked); err == nil &&
		(real != now.RealPath || there == nil || there.Size() != w.Bytes) {
		return w, unknown(
			"changed",
			"%q was written, but something else stands there now: look before you repeat it",
			u.asked,
		)
	}
	return w, nil
}

// fill writes and checks the partial file. replaced is nil for a new file; its owner is kept.
func (f *files) fill(
	ctx context.Context,
	partial string,
	u upload,
	mode fs.FileMode,
	replaced fs.FileInfo,
) (w WriteResult, err error) {
	out, err := f.OpenFile(partial, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return w, err
	}
	defer out.Close()
	sum := sha256.New()
	u.tell.total = u.size
	src := &feed{ctx: ctx, r: io.LimitReader(u.src, u.size+1), sum: sum, tell: u.tell}
	n, err := out.ReadFromWithConcurrency(src, int(min(parallel, u.size>>15+1)))
	if err = cmp.Or(src.err, err); err != nil {
		return w, err
	}
	if n != u.size {
		return w, failed(
			"changed",
			"the local file was %d bytes when it was decided and is not now; nothing was changed on the node",
			u.size,
		)
	}
	if want := u.digest; want != "" && want != "sha256:"+hex.EncodeToString(sum.Sum(nil)) {
		return w, failed(
			"changed",
			"the local file has other bytes than when the call was decided; nothing was changed on the node",
		)
	}
	made, err := out.Stat()
	if err != nil {
		return w, err
	}
	if made.Size() != n {
		return w, failed("disk_full", "%d bytes were sent, the node kept %d", n, made.Size())
	}
	w = WriteResult{Bytes: n, SHA256: hex.EncodeToString(sum.Sum(nil))}
	if n <= f.c.n.r.opts.VerifyBytes {
		back := sha256.New()
		if _, err := out.Seek(0, io.SeekStart); err != nil {
			return w, err
		}
		if _, err := out.WriteTo(back); err != nil {
			return w, err
		}
		if !bytes.Equal(back.Sum(nil), sum.Sum(nil)) {
			return w, failed("changed", "the node gave back other bytes than were sent")
		}
	}
	if replaced != nil && owner(replaced) != owner(made) {
		if o := owner(replaced); out.Chown(int(o[0]), int(o[1])) != nil {
			return w, failed(
				"permission",
				"%q belongs to user %d, group %d, and the login user may not keep it so",
				u.decided.RealPath,
				o[0],
				o[1],
			)
		}
	}
	if err := out.Chmod(mode); err != nil {
		return w, err
	}
	if v, has := f.HasExtension("fsync@openssh.com"); has && v == "1" {
		if err := out.Sync(); err != nil {
			return w, err
		}
	}
	return w, out.Close()
}

// feed digests what is read through it and stops with ctx.
type feed struct {
	ctx  context.Context // of one transfer
	r    io.Reader
	sum  hash.Hash
	tell *teller
	err  error
}

func (s *feed) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		s.err = s.ctx.Err()
		return 0, s.err
	}
	n, err := s.r.Read(p)
	s.sum.Write(p[:n])
	s.tell.moved(n)
	if err != nil && err != io.EOF {
		s.err = fileError("reading", "local file", err)
	}
	return n, err
}

// full finds out whether a write failed because the disk is full: SFTP has no code for it.
func (f *files) full(dir string, size int64, err error) error {
	if status := (*sftp.StatusError)(nil); !errors.As(err, &status) {
		return err
	}
	if _, has := f.HasExtension("statvfs@openssh.com"); has {
		if fs, serr := f.StatVFS(dir); serr == nil &&
			(fs.Bavail*fs.Frsize < uint64(size)+1<<16 || fs.Favail == 0 && fs.Files > 0) {
			return failed(
				"disk_full",
				"the node's disk has %d bytes left, %d were to be written; nothing was changed",
				fs.Bavail*fs.Frsize,
				size,
			)
		}
	}
	return err
}

// remove removes one file or link.
func (f *files) remove(p *pledge, asked string, decided *gate.FileFacts) error {
	now, _, err := f.again(asked, false, decided)
	switch {
	case err != nil:
		return err
	case !now.Exists:
		return fs.ErrNotExist
	case now.Type != "file" && now.Type != "symlink":
		return failed(
			"not_a_file",
			"%q is a %s; only files and links can be removed",
			now.RealPath,
			now.Type,
		)
	case !p.send():
		return context.Canceled
	}
	return f.Client.Remove(now.RealPath)
}

// commit asks p before a download gets its name.
func commit(ctx context.Context, p *pledge) func() error {
	return func() error {
		if !p.send() {
			return ctx.Err()
		}
		return nil
	}
}
