package pvelab

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"sync/atomic"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// serveSFTP is the sftp subsystem on a node's tree. Each operation is an effect; bytes are counted
// when a file is closed.
func (l *Lab) serveSFTP(ch ssh.Channel, node string) {
	t := l.nodeTree(node)
	if t == nil {
		return
	}
	h := &sftpTree{t: t, node: node}
	s := sftp.NewRequestServer(
		ch,
		sftp.Handlers{FileGet: h, FilePut: h, FileCmd: h, FileList: h},
		sftp.WithStartDirectory("/root"),
	)
	err := s.Serve()
	s.Close()
	code := uint32(0)
	if err != nil && !errors.Is(err, io.EOF) {
		code = 1
	}
	_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{code}))
}

type sftpTree struct {
	t    *tree
	node string
}

var (
	_ sftp.OpenFileWriter       = (*sftpTree)(nil)
	_ sftp.FileReader           = (*sftpTree)(nil)
	_ sftp.PosixRenameFileCmder = (*sftpTree)(nil)
	_ sftp.LstatFileLister      = (*sftpTree)(nil)
	_ sftp.RealPathFileLister   = (*sftpTree)(nil)
	_ sftp.ReadlinkFileLister   = (*sftpTree)(nil)
)

func (h *sftpTree) log(op, name, target string, bytes int64) {
	h.t.lab.effects.add(
		Effect{Node: h.node, Kind: "sftp", Op: op, Path: name, Target: target, Bytes: bytes},
	)
}

// counted is an open file that reports its bytes when it is closed.
type counted struct {
	file
	h    *sftpTree
	op   string
	name string
	n    atomic.Int64
}

func (c *counted) ReadAt(b []byte, off int64) (int, error) {
	n, err := c.file.ReadAt(b, off)
	if c.op == "read" {
		c.n.Add(int64(n))
	}
	return n, err
}

func (c *counted) WriteAt(b []byte, off int64) (int, error) {
	n, err := c.file.WriteAt(b, off)
	c.n.Add(int64(n))
	return n, err
}

func (c *counted) Close() error {
	err := c.file.Close()
	c.h.log(c.op, c.name, "", c.n.Load())
	return err
}

func (h *sftpTree) open(r *sftp.Request, flags int, op string) (*counted, error) {
	perm := fs.FileMode(0o644)
	if a := r.Attributes(); r.AttrFlags().Permissions {
		perm = a.FileMode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	}
	if fi, err := h.t.stat(r.Filepath, true); err == nil && fi.IsDir() {
		return nil, sftp.ErrSSHFxFailure
	}
	h.log("open", r.Filepath, op, 0)
	f, err := h.t.open(r.Filepath, flags, perm)
	if err != nil {
		return nil, plain(err)
	}
	return &counted{file: f, h: h, op: op, name: r.Filepath}, nil
}

// plain strips paths of the lab's own directory and gives the client the protocol's codes.
func plain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return sftp.ErrSSHFxNoSuchFile
	case errors.Is(err, fs.ErrPermission):
		return sftp.ErrSSHFxPermissionDenied
	}
	return sftp.ErrSSHFxFailure
}

func (h *sftpTree) Fileread(r *sftp.Request) (io.ReaderAt, error) {
	return h.open(r, os.O_RDONLY, "read")
}

func (h *sftpTree) Filewrite(r *sftp.Request) (io.WriterAt, error) { return h.openFor(r) }

func (h *sftpTree) OpenFile(r *sftp.Request) (sftp.WriterAtReaderAt, error) { return h.openFor(r) }

// openFor never opens with O_APPEND: the client says where each block goes.
func (h *sftpTree) openFor(r *sftp.Request) (*counted, error) {
	f, flags := r.Pflags(), os.O_RDWR
	if f.Creat {
		flags |= os.O_CREATE
	}
	if f.Trunc {
		flags |= os.O_TRUNC
	}
	if f.Excl {
		flags |= os.O_EXCL
	}
	return h.open(r, flags, "write")
}

func (h *sftpTree) PosixRename(r *sftp.Request) error {
	h.log("rename", r.Filepath, r.Target, 0)
	return plain(h.t.rename(r.Filepath, r.Target))
}

func (h *sftpTree) Filecmd(r *sftp.Request) error {
	switch r.Method {
	case "Rename": // without the extension an existing name is kept
		h.log("rename", r.Filepath, r.Target, 0)
		if _, err := h.t.stat(r.Target, false); err == nil {
			return sftp.ErrSSHFxFailure
		}
		return plain(h.t.rename(r.Filepath, r.Target))
	case "Remove", "Rmdir":
		h.log("remove", r.Filepath, "", 0)
		fi, err := h.t.stat(r.Filepath, false)
		if err == nil && fi.IsDir() != (r.Method == "Rmdir") {
			return sftp.ErrSSHFxFailure
		}
		if err == nil {
			err = h.t.remove(r.Filepath, false)
		}
		return plain(err)
	case "Mkdir":
		h.log("mkdir", r.Filepath, "", 0)
		perm := fs.FileMode(0o755)
		if r.AttrFlags().Permissions {
			perm = r.Attributes().FileMode().Perm()
		}
		return plain(h.t.mkdir(r.Filepath, perm))
	case "Symlink": // pkg/sftp gives the link's target as Filepath
		h.log("symlink", r.Target, r.Filepath, 0)
		return plain(h.t.symlink(r.Filepath, r.Target))
	case "Setstat":
		h.log("setstat", r.Filepath, "", 0)
		return plain(h.setstat(r))
	}
	return sftp.ErrSSHFxOpUnsupported
}

func (h *sftpTree) setstat(r *sftp.Request) error {
	a, has := r.Attributes(), r.AttrFlags()
	if _, err := h.t.stat(r.Filepath, true); err != nil {
		return err
	}
	if has.Size {
		f, err := h.t.open(r.Filepath, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if tr, ok := f.(interface{ Truncate(int64) error }); ok {
			if err := tr.Truncate(int64(a.Size)); err != nil {
				return err
			}
		}
	}
	if has.Permissions {
		if err := h.t.chmod(r.Filepath, a.FileMode()); err != nil {
			return err
		}
	}
	if has.UidGid {
		if err := h.t.chown(r.Filepath, int(a.UID), int(a.GID)); err != nil {
			return err
		}
	}
	if has.Acmodtime {
		return h.t.touch(r.Filepath, a.ModTime())
	}
	return nil
}

type listing []fs.FileInfo

func (l listing) ListAt(b []fs.FileInfo, off int64) (int, error) {
	if off >= int64(len(l)) {
		return 0, io.EOF
	}
	n := copy(b, l[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (h *sftpTree) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	if r.Method == "List" {
		h.log("list", r.Filepath, "", 0)
		list, err := h.t.readDir(r.Filepath)
		if err != nil {
			return nil, plain(err)
		}
		var out listing
		for _, i := range list {
			out = append(out, sftpInfo{i})
		}
		return out, nil
	}
	return h.statAs(r, true)
}

func (h *sftpTree) Lstat(r *sftp.Request) (sftp.ListerAt, error) { return h.statAs(r, false) }

func (h *sftpTree) statAs(r *sftp.Request, follow bool) (sftp.ListerAt, error) {
	h.log("stat", r.Filepath, "", 0)
	fi, err := h.t.stat(r.Filepath, follow)
	if err != nil {
		return nil, plain(err)
	}
	return listing{sftpInfo{fi}}, nil
}

// sftpInfo shows the lab's owner, not the machine's.
type sftpInfo struct{ info }

func (i sftpInfo) Uid() uint32 { return uint32(i.uid) }
func (i sftpInfo) Gid() uint32 { return uint32(i.gid) }

func (h *sftpTree) RealPath(name string) (string, error) {
	if !path.IsAbs(name) {
		name = path.Join("/root", name)
	}
	h.log("realpath", name, "", 0)
	rel, err := h.t.resolve(name, true)
	if err != nil {
		return "", plain(err)
	}
	return shown(rel), nil
}

func (h *sftpTree) Readlink(name string) (string, error) {
	h.log("readlink", name, "", 0)
	to, err := h.t.readlink(name)
	return to, plain(err)
}
