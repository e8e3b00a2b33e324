package remote

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"

	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/remote/internal/files"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/pkg/sftp"
)

const (
	verifyBytes = 16 << 20 // the size up to which an upload is read back and compared
	onePacket   = 32 << 10 // what every server returns at once (draft-ietf-secsh-filexfer-02, 3)
)

// upload is a file that is to be written on a node.
type upload struct {
	src  io.Reader
	size int64
	// octal; "" keeps the mode of a file that is replaced, and is 0600 for a new one
	mode      string
	overwrite bool
	// that the bytes must have, in the form of [Remote.Digests]; "" for any
	digest string
	screen io.WriteCloser // of the question; may be nil
}

func (v *visit) write(op abi.SFTPWrite) (terms.Result, error) {
	data, err := op.Data.Bytes()
	if err != nil {
		return terms.Result{}, effect.Failed("bad_input", "data: %v", err)
	}
	if limit := min(v.job.max, maxData); int64(len(data)) > limit {
		return terms.Result{}, effect.Failed("too_large", "%d bytes are more than the %d that are "+
			"allowed", len(data), limit)
	}
	return v.put(upload{src: bytes.NewReader(data), size: int64(len(data)), mode: op.Mode,
		overwrite: op.Overwrite})
}

func (v *visit) upload(op abi.SFTPPut) (terms.Result, error) {
	root, err := v.job.r.workspace.Open(v.job.q.Call.Principal.ID)
	if err != nil {
		return terms.Result{}, err
	}
	defer root.Close()
	src, size, err := files.Source(root, op.Local)
	if err != nil {
		return terms.Result{}, err
	}
	defer src.Close()
	switch decided := v.job.q.Facts.File.LocalBytes; {
	case size > v.job.max:
		return terms.Result{}, effect.Failed("too_large", "local %q has %d bytes, %d are allowed",
			op.Local, size, v.job.max)
	case size != decided:
		return terms.Result{}, effect.Failed("changed",
			"local %q had %d bytes when it was decided and "+
				"has %d now; nothing was sent", op.Local, decided, size)
	}
	digest := v.job.q.Call.Files[op.Local]
	if digest == "" {
		return terms.Result{}, effect.Failed("changed",
			"local %q is not among the files that were "+
				"there when the call was decided; nothing was sent", op.Local)
	}
	u := upload{src: src, size: size, mode: op.Mode, overwrite: op.Overwrite, digest: digest,
		screen: v.job.q.Screen}
	if u.screen != nil {
		u.src = io.TeeReader(src, u.screen)
	}
	return v.put(u)
}

// put writes a file beside its place, in a directory that only the login user can enter, makes sure
// that all of it arrived, and then renames it. Until the rename, nothing at the place has changed.
func (v *visit) put(u upload) (res terms.Result, err error) {
	if v.now.Exists {
		if err := v.mustBe("file"); err != nil {
			return res, err
		}
		if !u.overwrite {
			return res, fs.ErrExist
		}
	}
	mode, err := v.modeOf(u)
	if err != nil {
		return res, err
	}
	if v.ahead {
		if err := v.makeParents(); err != nil {
			return res, err
		}
	}
	dir := path.Join(path.Dir(v.now.RealPath), files.PartialPrefix+v.job.r.ledger.Unique())
	if err := v.MakePrivate(dir); err != nil {
		return res, err
	}
	defer v.Discard(dir)
	partial := path.Join(dir, "data")
	w, err := v.fill(partial, u, mode)
	if err != nil {
		return res, v.Full(dir, u.size, err)
	}
	if err := v.check(); err != nil {
		return res, err
	}
	if u.screen != nil {
		if err := u.screen.Close(); err != nil {
			return res, err
		}
	}
	if !v.pledge.Send() {
		return res, v.ctx.Err()
	}
	return terms.Result{Value: w, Bytes: w.Bytes, SHA256: w.SHA256}, v.rename(partial, u, mode)
}

// makeParents makes the directories above the file that are missing. They stay if what follows
// fails.
func (v *visit) makeParents() error {
	var missing []string
	for dir := path.Dir(v.now.RealPath); ; dir = path.Dir(dir) {
		info, err := v.Lstat(dir)
		if err == nil && files.Kind(info) != "dir" {
			err = effect.Failed("changed", "%q is a %s, not a directory", dir, files.Kind(info))
		}
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == "/" {
			return err
		}
		missing = append(missing, dir)
	}
	for _, dir := range slices.Backward(missing) {
		err := v.Mkdir(dir)
		if err == nil {
			err = v.Chmod(dir, 0o755)
		} else if info, lerr := v.Lstat(dir); lerr == nil && files.Kind(info) == "dir" {
			err = nil // made by another operation meanwhile
		}
		if err != nil {
			return v.Full(path.Dir(dir), 0, err)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return v.check()
}

func (v *visit) modeOf(u upload) (fs.FileMode, error) {
	switch {
	case u.mode != "":
		bits, err := strconv.ParseUint(u.mode, 8, 32)
		if err != nil || bits > 0o777 {
			return 0, effect.Failed("bad_input", "mode %q must be octal permission bits, such as "+
				"0644", u.mode)
		}
		return fs.FileMode(bits), nil
	case v.now.Exists:
		return v.info.Mode().Perm(), nil
	}
	return 0o600, nil
}

// fill writes and checks the partial file. The owner of a file that it will replace is kept.
func (v *visit) fill(
	partial string, u upload, mode fs.FileMode,
) (w abi.WriteResponse, err error) {
	out, err := v.OpenFile(partial, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return w, err
	}
	defer out.Close()
	src := v.flow(u.size+1, u.size)
	src.from = io.LimitReader(u.src, u.size+1)
	n, err := out.ReadFromWithConcurrency(src, int(min(files.Parallel, u.size>>15+1)))
	if err = cmp.Or(src.err, err); err != nil {
		return w, err
	}
	w = abi.WriteResponse{Bytes: n, SHA256: src.digest()}
	if n != u.size || u.digest != "" && u.digest != "sha256:"+w.SHA256 {
		return w, effect.Failed("changed", "the local file has other bytes than when the call was "+
			"decided; nothing was changed on the node")
	}
	made, err := files.Stat(out)
	if err != nil {
		return w, err
	}
	if made.Size() != n {
		return w, effect.Failed("disk_full", "%d bytes were sent, the node kept %d", n, made.Size())
	}
	if err := sameBytes(out, n, w.SHA256); err != nil {
		return w, err
	}
	if v.info != nil && files.Owner(v.info) != files.Owner(made) {
		if o := files.Owner(v.info); out.Chown(int(o[0]), int(o[1])) != nil {
			return w, effect.Failed("permission",
				"%q belongs to user %d, group %d, and the login user "+
					"may not keep it so", v.now.RealPath, o[0], o[1])
		}
	}
	if err := out.Chmod(mode); err != nil {
		return w, err
	}
	if version, has := v.HasExtension("fsync@openssh.com"); has && version == "1" {
		if err := out.Sync(); err != nil {
			return w, err
		}
	}
	return w, out.Close()
}

// sameBytes reads an uploaded file back, unless it is too large for that.
func sameBytes(out *sftp.File, size int64, digest string) error {
	if size > verifyBytes {
		return nil
	}
	back := sha256.New()
	if size <= onePacket { // WriteTo also asks for the size, which is known
		data := make([]byte, size)
		n, err := out.ReadAt(data, 0)
		if err != nil && err != io.EOF {
			return err
		}
		back.Write(data[:n])
	} else if _, err := out.Seek(0, io.SeekStart); err != nil {
		return err
	} else if _, err := out.WriteTo(back); err != nil {
		return err
	}
	if hex.EncodeToString(back.Sum(nil)) != digest {
		return effect.Failed("changed", "the node returned other bytes than were sent")
	}
	return nil
}

// rename gives a partial file its name, and makes sure that this, and nothing else, was done: a
// server may acknowledge a rename that it did not make, and the other way round.
func (v *visit) rename(partial string, u upload, mode fs.FileMode) error {
	real, rename := v.now.RealPath, v.Client.Rename
	if u.overwrite {
		rename = v.PosixRename
	}
	err := rename(partial, real)
	if files.Lost(err) {
		return err
	}
	_, left := v.Lstat(partial)
	moved := errors.Is(left, fs.ErrNotExist)
	switch {
	case err != nil && left == nil: // it was not done
		if there, lerr := v.Lstat(real); lerr == nil && there != nil && !u.overwrite {
			return fs.ErrExist // a server says only "Failure"
		}
		return err
	case err != nil:
		return effect.Unknown("unconfirmed",
			"writing %q: the node answered %v to the rename, but the "+
				"file that was to be renamed is gone: look before you repeat it", v.path, err)
	case left != nil && !moved:
		return effect.Unknown("unconfirmed",
			"writing %q: the rename was acknowledged and could not be "+
				"checked (%v): look before you repeat it", v.path, left)
	case !moved:
		return effect.Unknown("unconfirmed",
			"writing %q: the node acknowledged the rename, but the file "+
				"that was to be renamed is still there: look before you repeat it", v.path)
	}
	now, there, err := v.Resolve(v.path)
	switch {
	case files.Lost(err):
		return err
	case err != nil:
		return effect.Unknown("unconfirmed",
			"writing %q: it was renamed and could not be checked (%v): "+
				"look before you repeat it", v.path, err)
	case now != real || there == nil || files.Kind(there) != "file" || there.Size() != u.size ||
		there.Mode().Perm() != mode:
		return effect.Unknown("changed", "%q was written, but something else stands there now: "+
			"look before you repeat it", v.path)
	}
	return nil
}
