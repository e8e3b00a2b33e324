package sshtest

import (
	"encoding/binary"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/pkg/sftp"
)

// Packet types of SFTP version 3.
const (
	Init     = 1
	Version  = 2
	Open     = 3
	Read     = 5
	Write    = 6
	Lstat    = 7
	OpenDir  = 11
	ReadDir  = 12
	Remove   = 13
	RmDir    = 15
	RealPath = 16
	Stat     = 17
	Rename   = 18
	Extended = 200

	status = 101
	handle = 102
	data   = 103
	name   = 104
	attrs  = 105
)

// Script is an SFTP server that answers each packet as it is told. An answer of nil is silence.
type Script map[byte]func(id uint32, body []byte) []byte

// Serve speaks until the client ends. INIT is answered with version 3 unless the script says
// something else.
func (s Script) Serve(rw io.ReadWriteCloser) {
	defer rw.Close()
	var head [5]byte
	for {
		if _, err := io.ReadFull(rw, head[:]); err != nil {
			return
		}
		size := binary.BigEndian.Uint32(head[:])
		if size < 1 || size > 1<<20 {
			return
		}
		body := make([]byte, size-1)
		if _, err := io.ReadFull(rw, body); err != nil {
			return
		}
		var id uint32
		if head[4] != Init {
			id, body = binary.BigEndian.Uint32(body), body[4:]
		}
		answer := s[head[4]]
		switch {
		case answer != nil:
			if a := answer(id, body); a != nil {
				if _, err := rw.Write(a); err != nil {
					return
				}
			}
		case head[4] == Init:
			rw.Write(Raw(Version, []byte{0, 0, 0, 3}))
		default:
			rw.Write(Status(id, 0))
		}
	}
}

// Raw frames a packet.
func Raw(kind byte, body []byte) []byte {
	return append(append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+1)), kind), body...)
}

func str(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

func numbered(id uint32) []byte { return binary.BigEndian.AppendUint32(nil, id) }

// Status answers with a code: 0 ok, 1 end of file, 2 no such file, 4 failure.
func Status(id, code uint32) []byte {
	return Raw(status, str(str(binary.BigEndian.AppendUint32(numbered(id), code), ""), ""))
}

// Handle answers with a file handle.
func Handle(id uint32, h string) []byte { return Raw(handle, str(numbered(id), h)) }

// Data answers with bytes of a file.
func Data(id uint32, b []byte) []byte { return Raw(data, str(numbered(id), string(b))) }

// Attrs answers with a size and a mode, type bits included.
func Attrs(id uint32, size uint64, mode uint32) []byte {
	return Raw(attrs, attributes(numbered(id), size, mode))
}

func attributes(b []byte, size uint64, mode uint32) []byte {
	b = binary.BigEndian.AppendUint32(b, 1|4)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, size), mode)
}

// Names answers with names, all of them of small files.
func Names(id uint32, names ...string) []byte {
	b := binary.BigEndian.AppendUint32(numbered(id), uint32(len(names)))
	for _, n := range names {
		b = attributes(str(str(b, n), n), 1, 0o100644)
	}
	return Raw(name, b)
}

// Text reads the string at the start of a packet's body.
func Text(body []byte) string {
	if len(body) < 4 || uint32(len(body)-4) < binary.BigEndian.Uint32(body) {
		return ""
	}
	return string(body[4 : 4+binary.BigEndian.Uint32(body)])
}

// Tap stands between client and server and calls seen with the type of each packet that the client
// sends, before the server gets it.
type Tap struct {
	io.ReadWriteCloser
	Seen func(kind byte)
	left int64
	head []byte
}

func (t *Tap) Read(p []byte) (int, error) {
	k, err := t.ReadWriteCloser.Read(p)
	for b := p[:k]; len(b) > 0; {
		if t.left > 0 {
			part := min(t.left, int64(len(b)))
			t.left, b = t.left-part, b[part:]
			continue
		}
		need := min(5-len(t.head), len(b))
		t.head, b = append(t.head, b[:need]...), b[need:]
		if len(t.head) == 5 {
			t.left = int64(binary.BigEndian.Uint32(t.head)) - 1
			t.Seen(t.head[4])
			t.head = t.head[:0]
		}
	}
	return k, err
}

// Disk serves the real file system, but keeps only so many bytes.
type Disk struct{ Left atomic.Int64 }

// Serve speaks SFTP until the client ends.
func (d *Disk) Serve(rw io.ReadWriteCloser) {
	s := sftp.NewRequestServer(rw, sftp.Handlers{FileGet: d, FilePut: d, FileCmd: d, FileList: d})
	s.Serve()
	s.Close()
}

type diskFile struct {
	*os.File
	d *Disk
}

func (f diskFile) WriteAt(p []byte, off int64) (int, error) {
	if left := f.d.Left.Add(-int64(len(p))); left < 0 {
		f.d.Left.Store(0)
		return 0, syscall.ENOSPC
	}
	return f.File.WriteAt(p, off)
}

func (d *Disk) Fileread(r *sftp.Request) (io.ReaderAt, error) { return os.Open(r.Filepath) }

func (d *Disk) Filewrite(r *sftp.Request) (io.WriterAt, error) { return d.OpenFile(r) }

// OpenFile opens for reading and writing.
func (d *Disk) OpenFile(r *sftp.Request) (sftp.WriterAtReaderAt, error) {
	if d.Left.Load() <= 0 {
		return nil, syscall.ENOSPC
	}
	f, err := os.OpenFile(r.Filepath, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	return diskFile{f, d}, nil
}

func (d *Disk) Filecmd(r *sftp.Request) error {
	switch r.Method {
	case "Mkdir":
		if d.Left.Load() <= 0 {
			return syscall.ENOSPC
		}
		return os.Mkdir(r.Filepath, 0o755)
	case "Rmdir", "Remove":
		return os.Remove(r.Filepath)
	case "Rename", "PosixRename":
		return os.Rename(r.Filepath, r.Target)
	case "Setstat":
		return os.Chmod(r.Filepath, fs.FileMode(r.Attributes().Mode)&fs.ModePerm)
	}
	return sftp.ErrSSHFxOpUnsupported
}

func (d *Disk) PosixRename(r *sftp.Request) error { return os.Rename(r.Filepath, r.Target) }

// StatVFS tells how much is left.
func (d *Disk) StatVFS(*sftp.Request) (*sftp.StatVFS, error) {
	return &sftp.StatVFS{
		Bsize:  1,
		Frsize: 1,
		Blocks: 1 << 20,
		Bfree:  uint64(d.Left.Load()),
		Bavail: uint64(d.Left.Load()),
		Files:  100,
		Ffree:  100,
		Favail: 100,
	}, nil
}

type infos []os.FileInfo

func (l infos) ListAt(to []os.FileInfo, off int64) (int, error) {
	if off >= int64(len(l)) {
		return 0, io.EOF
	}
	n := copy(to, l[off:])
	if n < len(to) {
		return n, io.EOF
	}
	return n, nil
}

func (d *Disk) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	if r.Method != "List" {
		i, err := os.Stat(r.Filepath)
		return infos{i}, err
	}
	entries, err := os.ReadDir(r.Filepath)
	var l infos
	for _, e := range entries {
		if i, err := e.Info(); err == nil {
			l = append(l, i)
		}
	}
	return l, err
}

// Lstat does not follow links.
func (d *Disk) Lstat(r *sftp.Request) (sftp.ListerAt, error) {
	i, err := os.Lstat(r.Filepath)
	return infos{i}, err
}

// RealPath leaves links alone, as many servers do.
func (d *Disk) RealPath(p string) (string, error) { return filepath.Clean(p), nil }
