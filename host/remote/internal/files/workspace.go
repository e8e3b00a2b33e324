package files

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/caponier-mcp/caponier/host/remote/internal/effect"
	"github.com/caponier-mcp/caponier/host/terms"
)

var plainFolder = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}$`)

// Workspace is the directory of local files. Each principal has a folder in it.
type Workspace struct {
	dir     string
	maxFile int64 // bytes of a file that can be uploaded
	made    *Ledger
}

// NewWorkspace makes the directory unless it is there.
func NewWorkspace(dir string, maxFile int64, l *Ledger) (*Workspace, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making remote.workspace: %w", err)
	}
	return &Workspace{dir, maxFile, l}, nil
}

// folder is the name of a principal's folder. A principal whose name is not a plain file name, or
// looks like a digest, gets a digest of it.
func folder(principal string) string {
	if plainFolder.MatchString(principal) && !strings.HasPrefix(principal, "sha256-") {
		return principal
	}
	sum := sha256.Sum256([]byte(principal))
	return "sha256-" + hex.EncodeToString(sum[:16])
}

// Open opens the folder of a principal: nothing reached through it lies outside, whatever links
// are in it.
func (w *Workspace) Open(principal string) (*os.Root, error) {
	top, err := os.OpenRoot(w.dir)
	if err != nil {
		return nil, effect.Failed("permission", "opening remote.workspace: %v", err)
	}
	defer top.Close()
	name := folder(principal)
	bad := func(what string, err error) error {
		return effect.Failed("permission",
			"%s the folder of %s in remote.workspace: %v", what, principal,
			err)
	}
	if err := top.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, bad("making", err)
	}
	if info, err := top.Lstat(name); err != nil || !info.IsDir() {
		return nil, effect.Failed("permission", "%s in remote.workspace is not a folder", name)
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
		strings.ContainsFunc(name, odd) || strings.Contains("/"+name, "/"+PartialPrefix) {
		return effect.Failed("not_a_path",
			"local path %q must be relative to your workspace, without "+
				". or .., doubled slashes or control characters", name)
	}
	return nil
}

// Source opens a regular local file. Links and special files are refused: opening a FIFO would wait
// for ever.
func Source(root *os.Root, name string) (*os.File, int64, error) {
	if err := cleanLocal(name); err != nil {
		return nil, 0, err
	}
	before, err := root.Lstat(name)
	if err != nil {
		return nil, 0, Error("reading local file", name, err)
	}
	if !before.Mode().IsRegular() {
		return nil, 0, effect.Failed("not_a_file", "local %q is not a regular file", name)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, Error("reading local file", name, err)
	}
	info, err := f.Stat()
	if err != nil || !os.SameFile(before, info) {
		f.Close()
		return nil, 0, effect.Failed("changed", "local %q changed while it was opened", name)
	}
	return f, info.Size(), nil
}

// Vacant returns nil if a download may be put at name.
func Vacant(root *os.Root, name string, overwrite bool) error {
	if err := cleanLocal(name); err != nil {
		return err
	}
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return Error("writing local file", name, err)
	case !info.Mode().IsRegular():
		return effect.Failed("not_a_file", "local %q exists and is not a regular file", name)
	case !overwrite:
		return effect.Failed("exists", "local %q exists; set overwrite to replace it", name)
	}
	return nil
}

// Saving is a new file of the workspace.
type Saving struct {
	Principal, Name string // Name is the path in the folder of the principal
	Overwrite       bool
	Fill            func(io.Writer) (bytes int64, err error)
	Commit          func() error // called last, before the file gets its name; may be nil
}

// Receive writes a new file, which gets its name only when all of it is on the disk.
func (w *Workspace) Receive(s Saving) error {
	root, err := w.Open(s.Principal)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := Vacant(root, s.Name, s.Overwrite); err != nil {
		return err
	}
	dir := path.Dir(s.Name)
	if err := root.MkdirAll(dir, 0o700); err != nil {
		return Error("making local folder", dir, err)
	}
	partial := path.Join(dir, PartialPrefix+w.made.Unique())
	mine := terms.StageDir{Dir: path.Join(folder(s.Principal), partial)}
	if err := w.made.own(mine); err != nil {
		return err
	}
	defer func() {
		err := root.Remove(partial)
		w.made.Disown(mine, err == nil || errors.Is(err, fs.ErrNotExist))
	}()
	wrong := func(err error) error { return Error("writing local file", s.Name, err) }
	f, err := root.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return wrong(err)
	}
	defer f.Close()
	size, err := s.Fill(f)
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return wrong(err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != size {
		return effect.Failed("disk_full",
			"writing local file %q: %d bytes came, but the disk has not "+
				"kept them all (%v)", s.Name, size, err)
	}
	if err := f.Close(); err != nil {
		return wrong(err)
	}
	if s.Commit != nil {
		if err := s.Commit(); err != nil {
			return err
		}
	}
	if s.Overwrite {
		return wrong(root.Rename(partial, s.Name))
	}
	return wrong(root.Link(partial, s.Name)) // unlike a rename, it never replaces
}

// Remove removes a temporary file, and returns nil if it is gone already.
func (w *Workspace) Remove(name string) error {
	top, err := os.OpenRoot(w.dir)
	if err != nil {
		return Error("opening", "remote.workspace", err)
	}
	defer top.Close()
	if err := top.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Error("removing local file", name, err)
	}
	return nil
}

// noFile is the digest of a local file that does not exist or cannot be uploaded.
const noFile = "none"

// Digests returns what an upload of these local files would send now, as sha256:HEX or "none". A
// call is approved for these bytes. With below set, a name of a directory stands for itself and for
// everything below it that is no directory.
func (w *Workspace) Digests(principal string, names []string, below bool) (map[string]string,
	error) {
	root, err := w.Open(principal)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	digests := map[string]string{}
	left := w.maxFile
	for _, name := range names {
		digests[name], _ = w.digest(root, name, w.maxFile)
		if !below {
			continue
		}
		all, err := tree(root, name)
		if err != nil {
			return nil, err
		}
		for _, file := range all {
			var size int64
			// a name that is not UTF-8 is shown in another form, which no file has
			shown := strings.ToValidUTF8(file, "\uFFFD")
			if digests[shown], size = w.digest(root, file, left); shown != file {
				digests[shown] = noFile
			}
			left -= size
		}
		if left < 0 {
			return nil, effect.Failed("too_large", "the files below local %q have more than the "+
				"%d bytes that one call may upload (remote.max_file): upload directories below it",
				name, w.maxFile)
		}
	}
	return digests, nil
}

// digest returns the digest of a local file that has at most limit bytes, and its size.
func (w *Workspace) digest(root *os.Root, name string, limit int64) (string, int64) {
	f, size, err := Source(root, name)
	if err != nil {
		return noFile, 0
	}
	defer f.Close()
	if size > limit {
		return noFile, size
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(f, limit)); err != nil {
		return noFile, size
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), size
}

// Bounds of a local directory that is uploaded.
const (
	maxTree  = 1_000 // files
	maxDepth = 32    // directories in one another
)

// tree returns the paths of everything below a local directory that is no directory itself. Links
// are not followed. What is no directory has nothing below it.
func tree(root *os.Root, dir string) (all []string, err error) {
	if err := cleanLocal(dir); err != nil {
		return nil, err
	}
	if info, err := root.Lstat(dir); err != nil || !info.IsDir() {
		return nil, nil
	}
	err = fs.WalkDir(root.FS(), dir, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return Error("reading local directory", p, err)
		case d.IsDir() && strings.Count(p, "/")-strings.Count(dir, "/") >= maxDepth:
			return effect.Failed("too_large", "local %q has more than %d directories in one "+
				"another", dir, maxDepth)
		case d.IsDir():
			return nil
		case len(all) == maxTree:
			return effect.Failed("too_large", "local %q has more than the %d files that one call "+
				"may upload: upload directories below it", dir, maxTree)
		}
		all = append(all, p)
		return nil
	})
	return all, err
}
