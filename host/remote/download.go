package remote

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/remote/internal/files"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/pkg/sftp"
)

// read returns the file, at most limit bytes of it.
func (v *visit) read(limit int64) (terms.Result, error) {
	in, err := v.open()
	if err != nil {
		return terms.Result{}, err
	}
	defer in.Close()
	buf := make([]byte, limit+1)
	k, err := in.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return terms.Result{}, err
	}
	if err := v.whole(in, int64(k), limit); err != nil {
		return terms.Result{}, err
	}
	res := abi.ReadResponse{Bytes: min(int64(k), limit), EOF: int64(k) <= limit}
	res.Text, res.B64 = textOr64(buf[:res.Bytes], false)
	return terms.Result{Value: res, Bytes: res.Bytes}, nil
}

// download copies the file to the workspace.
func (v *visit) download(op abi.SFTPGet) (terms.Result, error) {
	res := abi.WriteResponse{Local: op.Local}
	err := v.job.r.workspace.Receive(files.Saving{
		Principal: v.job.q.Call.Principal.ID, Name: op.Local, Overwrite: op.Overwrite,
		Fill: func(w io.Writer) (size int64, err error) {
			if screen := v.job.q.Screen; screen != nil {
				w = io.MultiWriter(w, screen)
			}
			res.Bytes, res.SHA256, err = v.get(w, least(op.MaxBytes, v.job.max))
			return res.Bytes, err
		},
		Commit: func() error {
			if op.SHA256 != "" && op.SHA256 != res.SHA256 {
				return effect.Failed("changed",
					"%q has other bytes than were expected (sha256 %s, want "+
						"%s); local %q was not changed", v.path, res.SHA256, op.SHA256, op.Local)
			}
			if !v.pledge.Send() {
				return v.ctx.Err()
			}
			if screen := v.job.q.Screen; screen != nil {
				return screen.Close()
			}
			return nil
		}})
	return terms.Result{Value: res, Bytes: res.Bytes, SHA256: res.SHA256}, err
}

// afterCancel is what a read may take to notice that its call has ended.
const afterCancel = 2 * time.Second

// get copies the file to w, at most limit bytes, and returns its length and SHA-256.
func (v *visit) get(w io.Writer, limit int64) (int64, string, error) {
	in, err := v.open()
	if err != nil {
		return 0, "", err
	}
	defer in.Close()
	to := v.flow(limit, v.now.Bytes)
	to.to = w
	// The flow stops what ends in time. A server that does not answer never gets to it: its session
	// is closed.
	finished := make(chan struct{})
	defer close(finished)
	defer context.AfterFunc(v.ctx, func() {
		select {
		case <-finished:
		case <-time.After(afterCancel):
			v.Client.Close()
		}
	})()
	n, err := v.send(in, to)
	if err = cmp.Or(to.err, err); err == nil {
		err = v.whole(in, n, n+1) // limit was not reached
	}
	return n, to.digest(), err
}

// send copies the whole file. Of a small one the bytes that it had are asked for at once, which is
// all of it unless it has changed: then whole finds that out, as for every file.
func (v *visit) send(in *sftp.File, to *flow) (int64, error) {
	if size := v.now.Bytes; size > 0 && size <= smallFile {
		buf := make([]byte, size)
		k, err := in.ReadAt(buf, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		k, err = to.Write(buf[:k])
		return int64(k), err
	}
	return in.WriteTo(to)
}

// smallFile is what every SFTP server sends in one packet.
const smallFile = 32 << 10

// open opens the regular file, and makes sure that what was opened is what the path leads to, at
// the real path that was decided. SFTP has no inode numbers; type, mode and owner have to do. What
// stands there is looked at before: opening a FIFO would stop the node's SFTP server.
func (v *visit) open() (*sftp.File, error) {
	real := v.job.q.Facts.File.RealPath
	before, err := v.Lstat(real)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !v.job.q.Facts.File.Exists:
		return nil, err
	case err != nil, files.Kind(before) != v.job.q.Facts.File.Type:
		if changed := v.check(); changed != nil { // which says what has changed
			return nil, changed
		}
		return nil, cmp.Or(err, error(effect.Failed("changed",
			"%q was replaced while it was opened; nothing was done", real)))
	}
	v.now = *v.job.q.Facts.File
	if err := v.mustBe("file"); err != nil {
		return nil, err
	}
	in, err := v.OpenFile(real, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	opened, err := files.Stat(in)
	if err == nil {
		err = v.check()
	}
	if err == nil && !(same(opened, before) && same(opened, v.info) &&
		uint32(opened.Mode().Perm()) == v.job.q.Facts.File.Mode) {
		err = effect.Failed("changed",
			"%q was replaced while it was opened; nothing was done", real)
	}
	if err != nil {
		in.Close()
		return nil, err
	}
	v.now.Bytes = opened.Size()
	return in, nil
}

// same reports whether two descriptions can be of one file.
func same(a, b fs.FileInfo) bool {
	return files.Kind(a) == files.Kind(b) && a.Mode() == b.Mode() &&
		files.Owner(a) == files.Owner(b)
}

// whole makes sure that n bytes from the start of a file are all of it, or all up to limit. Only
// the kernel's own files are shorter or longer than they say.
func (v *visit) whole(in *sftp.File, n, limit int64) error {
	info, err := files.Stat(in)
	if err != nil {
		return err
	}
	real, size := v.now.RealPath, info.Size()
	if n >= min(size, limit) && n <= size || strings.HasPrefix(real, "/sys/") ||
		strings.HasPrefix(real, "/proc/") {
		return nil
	}
	return effect.Failed("changed",
		"the node sent %d bytes of %q, which has %d: the file was changed "+
			"meanwhile, or the SFTP server answers wrongly", n, real, size)
}
