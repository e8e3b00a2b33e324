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

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/pkg/sftp"
)

func written(w abi.WriteResponse) gate.Result {
	return gate.Result{Value: w, Bytes: w.Bytes, SHA256: w.SHA256}
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
