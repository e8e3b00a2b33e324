package pvelab

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// file is an open file of a tree.
type file interface {
	io.ReadWriteCloser
	io.ReaderAt
	io.WriterAt
}

// open opens a file. New files get exactly perm: the machine's umask does not reach into the tree.
func (t *tree) open(name string, flag int, perm fs.FileMode) (file, error) {
	if v, ok := t.pve(name); ok {
		return v.open(flag)
	}
	if d, ok := devices[path.Clean("/"+name)]; ok {
		return device{d}, nil
	}
	follow := flag&(os.O_CREATE|os.O_EXCL) != os.O_CREATE|os.O_EXCL
	rel, err := t.resolve(name, follow)
	if err != nil {
		return nil, err
	}
	_, err = t.root.Lstat(rel)
	fresh := errors.Is(err, fs.ErrNotExist)
	want := perm
	if !t.native {
		perm |= 0o600 // on the disk; what the lab shows follows below
	}
	f, err := t.root.OpenFile(rel, flag, perm.Perm())
	if err != nil {
		return nil, err
	}
	if fresh {
		t.dropMeta(rel)
		if err := t.chmodRel(rel, want); err != nil {
			f.Close()
			return nil, err
		}
	}
	if q := t.quota(rel); q != "" && flag&(os.O_WRONLY|os.O_RDWR) != 0 {
		return &quotaFile{file: f, lab: t.lab, vmid: t.vmid, dir: q}, nil
	}
	return f, nil
}

// quota names the limited directory that holds rel, or "".
func (t *tree) quota(rel string) (dir string) {
	if t.vmid == 0 {
		return ""
	}
	_ = t.lab.db.view(func(s *State) {
		if g := s.guest(t.vmid); g != nil {
			for d := range g.Full {
				if d == "/" || shown(rel) == d || strings.HasPrefix(shown(rel), d+"/") {
					dir = d
				}
			}
		}
	})
	return dir
}

// quotaFile takes each written byte from the guest's remaining space.
type quotaFile struct {
	file // an *os.File here would lend its ReadFrom, which no quota sees
	lab  *Lab
	vmid int
	dir  string
}

func (q *quotaFile) take(n int) (ok int) {
	_ = q.lab.db.update(func(s *State) error {
		if g := s.guest(q.vmid); g != nil {
			left, limited := g.Full[q.dir]
			if ok = n; limited && int64(n) > left {
				ok = int(left)
			}
			if limited {
				g.Full[q.dir] = left - int64(ok)
			}
		}
		return nil
	})
	return ok
}

func (q *quotaFile) Write(b []byte) (int, error) {
	ok := q.take(len(b))
	n, err := q.file.Write(b[:ok])
	if err == nil && n < len(b) {
		err = syscall.ENOSPC
	}
	return n, err
}

func (q *quotaFile) WriteAt(b []byte, off int64) (int, error) {
	ok := q.take(len(b))
	n, err := q.file.WriteAt(b[:ok], off)
	if err == nil && n < len(b) {
		err = syscall.ENOSPC
	}
	return n, err
}

// devices are the character devices that programs expect: what a read of each gives.
var devices = map[string]func([]byte) (int, error){
	"/dev/null":    func([]byte) (int, error) { return 0, io.EOF },
	"/dev/zero":    func(b []byte) (int, error) { clear(b); return len(b), nil },
	"/dev/urandom": rand.Read,
}

// device swallows what is written to it.
type device struct{ read func([]byte) (int, error) }

func (d device) Read(b []byte) (int, error)            { return d.read(b) }
func (d device) ReadAt(b []byte, _ int64) (int, error) { return d.read(b) }
func (device) Write(b []byte) (int, error)             { return len(b), nil }
func (device) WriteAt(b []byte, _ int64) (int, error)  { return len(b), nil }
func (device) Close() error                            { return nil }
