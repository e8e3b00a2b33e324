package remote

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/caponier-mcp/caponier/host/gate"
)

var plainFolder = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}$`)

// folder is the name of a principal's folder. A principal whose name is not a plain file name, or
// looks like a digest, gets a digest of it.
func folder(principal string) string {
	if plainFolder.MatchString(principal) && !strings.HasPrefix(principal, "sha256-") {
		return principal
	}
	sum := sha256.Sum256([]byte(principal))
	return "sha256-" + hex.EncodeToString(sum[:16])
}

// local opens the folder of a principal: nothing reached through it lies outside, whatever links
// are in it.
func (r *Remote) local(principal string) (*os.Root, error) {
	top, err := os.OpenRoot(r.opts.Workspace)
	if err != nil {
		return nil, failed("permission", "opening remote.workspace: %v", err)
	}
	defer top.Close()
	name := folder(principal)
	bad := func(what string, err error) error {
		return failed("permission", "%s the folder of %s in remote.workspace: %v", what, principal,
			err)
	}
	if err := top.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, bad("making", err)
	}
	if info, err := top.Lstat(name); err != nil || !info.IsDir() {
		return nil, failed("permission", "%s in remote.workspace is not a folder", name)
	}
	root, err := top.OpenRoot(name)
	if err != nil {
		return nil, bad("opening", err)
	}
	return root, nil
}

// cleanLocal accepts a relative path in its one form.
func cleanLocal(name string) error {
	odd := func(c rune) bool { return c < ' ' || c == 0x7F || c == '\\' }
	if name == "." || !filepath.IsLocal(name) || path.Clean(name) != name ||
		strings.ContainsFunc(name, odd) || strings.Contains("/"+name, "/"+partialPrefix) {
		return failed("not_a_path", "local path %q must be relative to your workspace, without "+
			". or .., doubled slashes or control characters", name)
	}
	return nil
}

// source opens a regular local file. Links and special files are refused: opening a FIFO would wait
// for ever.
func source(root *os.Root, name string) (*os.File, int64, error) {
	if err := cleanLocal(name); err != nil {
		return nil, 0, err
	}
	before, err := root.Lstat(name)
	if err != nil {
		return nil, 0, fileError("reading local file", name, err)
	}
	if !before.Mode().IsRegular() {
		return nil, 0, failed("not_a_file", "local %q is not a regular file", name)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, fileError("reading local file", name, err)
	}
	info, err := f.Stat()
	if err != nil || !os.SameFile(before, info) {
		f.Close()
		return nil, 0, failed("changed", "local %q changed while it was opened", name)
	}
	return f, info.Size(), nil
}

// vacant returns nil if a download may be put at name.
func vacant(root *os.Root, name string, overwrite bool) error {
	if err := cleanLocal(name); err != nil {
		return err
	}
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fileError("writing local file", name, err)
	case !info.Mode().IsRegular():
		return failed("not_a_file", "local %q exists and is not a regular file", name)
	case !overwrite:
		return failed("exists", "local %q exists; set overwrite to replace it", name)
	}
	return nil
}

// saving is a new file of the workspace.
type saving struct {
	root         *os.Root
	folder, name string // folder of the principal, and the path in it
	overwrite    bool
	fill         func(io.Writer) (bytes int64, err error)
	commit       func() error // called last, before the file gets its name
}

// receive writes a new file, which gets its name only when all of it is on the disk.
func (r *Remote) receive(s saving) error {
	if err := vacant(s.root, s.name, s.overwrite); err != nil {
		return err
	}
	dir := path.Dir(s.name)
	if err := s.root.MkdirAll(dir, 0o700); err != nil {
		return fileError("making local folder", dir, err)
	}
	partial := path.Join(dir, partialPrefix+r.unique())
	mine := owned{"", path.Join(s.folder, partial)}
	if err := r.own(mine); err != nil {
		return err
	}
	defer func() {
		err := s.root.Remove(partial)
		r.disown(mine, err == nil || errors.Is(err, fs.ErrNotExist))
	}()
	wrong := func(err error) error { return fileError("writing local file", s.name, err) }
	f, err := s.root.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return wrong(err)
	}
	defer f.Close()
	size, err := s.fill(f)
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return wrong(err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != size {
		return failed("disk_full", "writing local file %q: %d bytes came, but the disk has not "+
			"kept them all (%v)", s.name, size, err)
	}
	if err := f.Close(); err != nil {
		return wrong(err)
	}
	if err := s.commit(); err != nil {
		return err
	}
	if s.overwrite {
		return wrong(s.root.Rename(partial, s.name))
	}
	return wrong(s.root.Link(partial, s.name)) // unlike a rename, it never replaces
}

// Save makes a new file in the folder of a principal, and replaces none. The error is a
// *gate.OpError.
func (r *Remote) Save(principal, name string, data io.Reader) error {
	root, err := r.local(principal)
	if err != nil {
		return err
	}
	defer root.Close()
	return r.receive(saving{root: root, folder: folder(principal), name: name,
		fill:   func(w io.Writer) (int64, error) { return io.Copy(w, data) },
		commit: func() error { return nil }})
}

// noFile is the digest of a local file that does not exist or cannot be uploaded.
const noFile = "none"

// Digests returns what an upload of these local files would send now, as sha256:HEX or "none". A
// call is approved for these bytes.
func (r *Remote) Digests(p gate.Principal, names []string) (map[string]string, error) {
	root, err := r.local(p.ID)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	digests := map[string]string{}
	for _, name := range names {
		digests[name] = noFile
		f, size, err := source(root, name)
		if err != nil {
			continue
		}
		sum := sha256.New()
		if size <= r.opts.MaxFile {
			_, err = io.Copy(sum, io.LimitReader(f, r.opts.MaxFile))
		}
		if f.Close(); err == nil && size <= r.opts.MaxFile {
			digests[name] = "sha256:" + hex.EncodeToString(sum.Sum(nil))
		}
	}
	return digests, nil
}
