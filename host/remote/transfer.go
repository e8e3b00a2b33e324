package remote

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/pkg/sftp"
)

func written(w abi.WriteResponse) gate.Result {
	return gate.Result{Value: w, Bytes: w.Bytes, SHA256: w.SHA256}
}

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
	digest    string // that the bytes must have, in the form of [Remote.Digests]; "" for any
}

// put writes a file beside its place, in a directory that only the login user can enter, makes sure
// that all of it arrived, and then renames it. Until p allowed the rename, nothing at the place has
// changed.
func (f *files) put(ctx context.Context, p *pledge, u upload) (w abi.WriteResponse, err error) {
	now, info, err := f.again(u.asked, true, u.decided)
	switch {
	case err != nil:
		return w, err
	case now.Exists && now.Type != "file":
		return w, failed("not_a_file", "%q is a %s; only a regular file can be replaced",
			now.RealPath, now.Type)
	case now.Exists && !u.overwrite:
		return w, fs.ErrExist
	}
	p.once.Store(true) // the source is read from here on
	mode := fs.FileMode(0o600)
	if u.mode != "" {
		bits, err := strconv.ParseUint(u.mode, 8, 32)
		if err != nil || bits > 0o777 {
			return w, failed("bad_input", "mode %q must be octal permission bits, such as 0644",
				u.mode)
		}
		mode = fs.FileMode(bits)
	} else if now.Exists {
		mode = info.Mode().Perm()
	}
	n := f.c.n
	dir := path.Join(path.Dir(now.RealPath), partialPrefix+n.r.unique())
	if err := f.private(dir); err != nil {
		return w, err
	}
	defer f.discard(dir)
	partial := path.Join(dir, "data")
	if w, err = f.fill(ctx, partial, u, mode, info); err != nil {
		return w, f.full(dir, u.size, err)
	}
	if _, _, err := f.again(u.asked, true, u.decided); err != nil {
		return w, err
	}
	if !p.send() {
		return w, ctx.Err()
	}
	return w, f.rename(partial, now.RealPath, u, mode)
}

// rename gives a partial file its name, and makes sure that this, and nothing else, was done: a
// server may acknowledge a rename that it did not make, and the other way round.
func (f *files) rename(partial, real string, u upload, mode fs.FileMode) error {
	var err error
	if u.overwrite {
		err = f.PosixRename(partial, real)
	} else {
		err = f.Rename(partial, real)
	}
	if lostConnection(err) {
		return err
	}
	_, left := f.lstat(partial)
	moved := errors.Is(left, fs.ErrNotExist)
	switch {
	case err != nil && left == nil: // it was not done
		if there, lerr := f.lstat(real); lerr == nil && there != nil && !u.overwrite {
			return fs.ErrExist // a server says only "Failure"
		}
		return err
	case err != nil:
		return unknown("unconfirmed", "writing %q: the node answered %v to the rename, but the "+
			"file that was to be renamed is gone: look before you repeat it", u.asked, err)
	case left != nil && !moved:
		return unknown("unconfirmed", "writing %q: the rename was acknowledged and could not be "+
			"checked (%v): look before you repeat it", u.asked, left)
	case !moved:
		return unknown("unconfirmed", "writing %q: the node acknowledged the rename, but the file "+
			"that was to be renamed is still there: look before you repeat it", u.asked)
	}
	now, there, err := f.resolve(u.asked)
	switch {
	case lostConnection(err):
		return err
	case err != nil:
		return unknown("unconfirmed", "writing %q: it was renamed and could not be checked (%v): "+
			"look before you repeat it", u.asked, err)
	case now != real || there == nil || kind(there) != "file" || there.Size() != u.size ||
		there.Mode().Perm() != mode:
		return unknown("changed", "%q was written, but something else stands there now: "+
			"look before you repeat it", u.asked)
	}
	return nil
}

// fill writes and checks the partial file. replaced is nil for a new file; its owner is kept.
func (f *files) fill(
	ctx context.Context, partial string, u upload, mode fs.FileMode, replaced fs.FileInfo,
) (w abi.WriteResponse, err error) {
	out, err := f.openFile(partial, os.O_RDWR|os.O_CREATE|os.O_EXCL)
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
	w = abi.WriteResponse{Bytes: n, SHA256: hex.EncodeToString(sum.Sum(nil))}
	if n != u.size || u.digest != "" && u.digest != "sha256:"+w.SHA256 {
		return w, failed("changed", "the local file has other bytes than when the call was "+
			"decided; nothing was changed on the node")
	}
	made, err := fstat(out)
	if err != nil {
		return w, err
	}
	if made.Size() != n {
		return w, failed("disk_full", "%d bytes were sent, the node kept %d", n, made.Size())
	}
	if n <= f.c.n.r.opts.VerifyBytes {
		back := sha256.New()
		if _, err := out.Seek(0, io.SeekStart); err != nil {
			return w, err
		}
		if _, err := out.WriteTo(back); err != nil {
			return w, err
		}
		if !bytes.Equal(back.Sum(nil), sum.Sum(nil)) {
			return w, failed("changed", "the node returned other bytes than were sent")
		}
	}
	if replaced != nil && owner(replaced) != owner(made) {
		if o := owner(replaced); out.Chown(int(o[0]), int(o[1])) != nil {
			return w, failed("permission", "%q belongs to user %d, group %d, and the login user "+
				"may not keep it so", u.decided.RealPath, o[0], o[1])
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

// full finds out whether a write into dir failed because the disk is full: SFTP version 3 has no
// code for that.
func (f *files) full(dir string, size int64, err error) error {
	status := (*sftp.StatusError)(nil)
	if _, has := f.HasExtension("statvfs@openssh.com"); !has || !errors.As(err, &status) {
		return err
	}
	disk, serr := f.StatVFS(dir)
	if serr != nil || disk == nil {
		return err
	}
	free := int64(min(disk.Bavail*disk.Frsize, 1<<62))
	if free >= size+1<<16 && (disk.Favail > 0 || disk.Files == 0) {
		return err
	}
	return failed("disk_full", "no space is left on the node's disk for %d bytes; nothing was "+
		"changed", size)
}

// remove removes one file or link, and makes sure that it is gone.
func (f *files) remove(p *pledge, asked string, decided gate.FileFacts) error {
	now, _, err := f.again(asked, false, decided)
	switch {
	case err != nil:
		return err
	case !now.Exists:
		return fs.ErrNotExist
	case now.Type != "file" && now.Type != "symlink":
		return failed("not_a_file", "%q is a %s; only files and links can be removed",
			now.RealPath, now.Type)
	case !p.send():
		return context.Canceled
	}
	err = f.Client.Remove(now.RealPath)
	if lostConnection(err) {
		return err
	}
	_, left := f.lstat(now.RealPath)
	switch gone := errors.Is(left, fs.ErrNotExist); {
	case err == nil && gone, err != nil && left == nil:
		return err
	case err == nil && left == nil:
		return unknown("unconfirmed", "removing %q: the node acknowledged it, but the file is "+
			"still there, or there again: look before you repeat it", asked)
	}
	return unknown("unconfirmed", "removing %q: the node answered %v, and %v to whether it is "+
		"still there: look before you repeat it", asked, err, left)
}
