package pvelab

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// tree is the file system of one node or one container: a directory of the lab behind os.Root, so
// that no name, and no symbolic link, leads to the machine's own files. Symbolic links are followed
// here, as a chroot would, because os.Root refuses absolute ones.
type tree struct {
	lab *Lab
	// nodes/pve1 or ct/101: the directory below the lab's, and the prefix of its Meta keys
	key  string
	node string // set for a node's tree, which shows /etc/pve
	root *os.Root
	vmid int // set for a container's tree

	// the machine's own files, for the wrappers behind a real sshd: modes and owners are the real
	// ones
	native bool
}

const maxLinks = 40

// resolve turns a virtual path into one without symbolic links, relative to the root. A last
// element that does not exist is kept; every other one must exist.
func (t *tree) resolve(name string, follow bool) (string, error) {
	todo := strings.Split(path.Clean("/"+name), "/")[1:]
	done := ""
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			done = strings.TrimPrefix(path.Dir("/"+done), "/")
			continue
		}
		next := path.Join(done, part)
		fi, err := t.root.Lstat(next)
		if err != nil {
			if len(todo) == 0 && errors.Is(err, fs.ErrNotExist) {
				return next, nil
			}
			return "", err
		}
		if fi.Mode()&fs.ModeSymlink == 0 || (len(todo) == 0 && !follow) {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
		}
		to, err := t.root.Readlink(next)
		if err != nil {
			return "", err
		}
		if path.IsAbs(to) {
			done = ""
		}
		todo = append(strings.Split(to, "/"), todo...)
	}
	if done == "" {
		done = "."
	}
	return done, nil
}

// shown is a resolved path as the tree's user sees it.
func shown(rel string) string { return path.Clean("/" + rel) }

func (t *tree) stat(name string, follow bool) (info, error) {
	if v, ok := t.pve(name); ok {
		return v.stat()
	}
	rel, err := t.resolve(name, follow)
	if err != nil {
		return info{}, err
	}
	if v, ok := t.pve(shown(rel)); ok && follow {
		return v.stat()
	}
	fi, err := t.root.Lstat(rel)
	if err != nil {
		return info{}, err
	}
	return t.wrap(rel, fi), nil
}

func (t *tree) readDir(name string) ([]info, error) {
	if v, ok := t.pve(name); ok {
		return v.readDir()
	}
	rel, err := t.resolve(name, true)
	if err != nil {
		return nil, err
	}
	f, err := t.root.Open(rel)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	var out []info
	for _, e := range list {
		fi, err := e.Info()
		if err != nil {
			continue // removed meanwhile
		}
		out = append(out, t.wrap(path.Join(rel, e.Name()), fi))
	}
	slices.SortFunc(out, func(a, b info) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

// chmod sets the twelve bits. The real file keeps access for the lab's own user, and never gets a
// setuid bit.
func (t *tree) chmod(name string, mode fs.FileMode) error {
	rel, err := t.resolve(name, true)
	if err != nil {
		return err
	}
	return t.chmodRel(rel, mode)
}

func (t *tree) chmodRel(rel string, mode fs.FileMode) error {
	if t.native {
		return t.root.Chmod(rel, mode)
	}
	fi, err := t.root.Lstat(rel)
	if err != nil {
		return err
	}
	keep := fs.FileMode(0o600)
	if fi.IsDir() {
		keep = 0o700
	}
	if err := t.root.Chmod(rel, mode.Perm()|keep); err != nil {
		return err
	}
	want := modeNumber(mode)
	exact := mode.Perm()|keep == mode.Perm() && want == uint32(mode.Perm())
	if m := t.meta(rel); exact && !m.Moded {
		return nil
	}
	return t.setMeta(rel, func(m *Meta) {
		if m.Moded, m.Mode = !exact, want; exact {
			m.Mode = 0
		}
	})
}

// chown records an owner; a negative id stays as it was.
func (t *tree) chown(name string, uid, gid int) error {
	rel, err := t.resolve(name, true)
	if err != nil {
		return err
	}
	if _, err := t.root.Lstat(rel); err != nil {
		return err
	}
	if t.native {
		if uid < 0 && gid < 0 {
			return nil
		}
		return t.root.Chown(rel, uid, gid)
	}
	if m := t.meta(rel); (uid < 0 || m.UID == uid) && (gid < 0 || m.GID == gid) {
		return nil
	}
	return t.setMeta(rel, func(m *Meta) {
		if uid >= 0 {
			m.UID = uid
		}
		if gid >= 0 {
			m.GID = gid
		}
	})
}

func (t *tree) mkdir(name string, perm fs.FileMode) error {
	rel, err := t.resolve(name, false)
	if err != nil {
		return err
	}
	if err := t.root.Mkdir(rel, perm.Perm()|0o700); err != nil {
		return err
	}
	return t.chmodRel(rel, perm)
}

func (t *tree) mkdirAll(name string, perm fs.FileMode) error {
	name = path.Clean("/" + name)
	if fi, err := t.stat(name, true); err == nil {
		if fi.IsDir() {
			return nil
		}
		return &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
	}
	if err := t.mkdirAll(path.Dir(name), perm); err != nil {
		return err
	}
	return t.mkdir(name, perm)
}

func (t *tree) remove(name string, all bool) error {
	rel, err := t.resolve(name, false)
	if err != nil {
		return err
	}
	if rel == "." {
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.EBUSY}
	}
	if all {
		err = t.root.RemoveAll(rel)
	} else {
		err = t.root.Remove(rel)
	}
	if err == nil {
		t.dropMeta(rel)
	}
	return err
}

func (t *tree) rename(from, to string) error {
	a, err := t.resolve(from, false)
	if err != nil {
		return err
	}
	b, err := t.resolve(to, false)
	if err != nil {
		return err
	}
	if err := t.root.Rename(a, b); err != nil {
		return err
	}
	if t.native {
		return nil
	}
	t.dropMeta(b)
	ka, kb := t.key+shown(a), t.key+shown(b)
	return t.lab.db.update(func(s *State) error {
		for k, m := range s.Meta {
			if rest, ok := strings.CutPrefix(k, ka); ok && (rest == "" || rest[0] == '/') {
				s.Meta[kb+rest] = m
				delete(s.Meta, k)
			}
		}
		return nil
	})
}

func (t *tree) symlink(target, name string) error {
	rel, err := t.resolve(name, false)
	if err != nil {
		return err
	}
	return t.root.Symlink(target, rel)
}

func (t *tree) readlink(name string) (string, error) {
	rel, err := t.resolve(name, false)
	if err != nil {
		return "", err
	}
	return t.root.Readlink(rel)
}

func (t *tree) touch(name string, at time.Time) error {
	rel, err := t.resolve(name, true)
	if err != nil {
		return err
	}
	return t.root.Chtimes(rel, at, at)
}

func (t *tree) readFile(name string) ([]byte, error) {
	f, err := t.open(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

func (t *tree) writeFile(name string, b []byte, perm fs.FileMode) error {
	f, err := t.open(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// errText is an error in the words of the C library.
func errText(err error) string {
	var no syscall.Errno
	switch {
	case errors.As(err, &no):
	case errors.Is(err, fs.ErrNotExist):
		no = syscall.ENOENT
	case errors.Is(err, fs.ErrExist):
		no = syscall.EEXIST
	case errors.Is(err, fs.ErrPermission):
		no = syscall.EACCES
	default:
		return err.Error()
	}
	s := no.Error()
	return strings.ToUpper(s[:1]) + s[1:]
}
