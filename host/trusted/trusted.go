// Package trusted handles the files that decide what the host does: configuration, policy, lock,
// tokens. It refuses a file that another user can change, and everything that is not a regular
// file.
//
// A path is trusted when it belongs to this user or to root and neither its group nor others can
// write to it. The group of a file that this user owns may write when it is this user's own group,
// as umask 002 leaves it. Links are followed; what they lead to is checked. No function of this
// package blocks on a FIFO or a device.
package trusted

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrUntrusted is matched, with errors.Is, by every error that says that a path must not be used
// as it is. Other errors come from the file system.
var ErrUntrusted = errors.New("untrusted")

type untrusted struct{ text string }

func (e untrusted) Error() string        { return e.text }
func (e untrusted) Is(target error) bool { return target == ErrUntrusted }

// File reports why path must not be trusted: it is missing, not a regular file, or another user
// can change it.
func File(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return Regular(path, info)
}

// Dir reports why the directory at path must not be trusted: it is missing, not a directory, or
// another user can add and remove files in it. It does not look at what is in the directory.
func Dir(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return untrusted{path + " is not a directory"}
	}
	return mine(path, info)
}

// Regular is File for a path whose FileInfo is known.
func Regular(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return untrusted{fmt.Sprintf("%s is not a regular file (%s)", path, kind(info.Mode()))}
	}
	return mine(path, info)
}

// Read returns the content of the trusted file at path. A file of more than limit bytes is an
// error.
func Read(path string, limit int64) ([]byte, error) {
	open := func() (*os.File, error) { return os.OpenFile(path, flags, 0) }
	return read(path, limit, func() (fs.FileInfo, error) { return os.Stat(path) }, open)
}

// ReadIn is Read for a file below root. A link that leads out of root is an error.
func ReadIn(root *os.Root, name string, limit int64) ([]byte, error) {
	open := func() (*os.File, error) { return root.OpenFile(name, flags, 0) }
	stat := func() (fs.FileInfo, error) { return root.Stat(name) }
	return read(root.Name()+string(os.PathSeparator)+name, limit, stat, open)
}

// flags never block, not even on a FIFO without a writer.
const flags = os.O_RDONLY | syscall.O_NONBLOCK

// read looks before it opens, because opening a device can have effects, and again afterwards,
// because the file can have been replaced in between.
func read(path string, limit int64, stat func() (fs.FileInfo, error),
	open func() (*os.File, error)) ([]byte, error) {
	info, err := stat()
	if err != nil {
		return nil, err
	}
	if err := Regular(path, info); err != nil {
		return nil, err
	}
	f, err := open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := Regular(path, info); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Grow(int(min(info.Size(), limit)) + bytes.MinRead)
	_, err = b.ReadFrom(io.LimitReader(f, limit+1))
	data := b.Bytes()
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return data, err
}

func mine(path string, info fs.FileInfo) error {
	owner, group, known := owners(info)
	if known && owner != os.Getuid() && owner != 0 {
		return untrusted{fmt.Sprintf("%s belongs to user %d, who can change it: chown it to the "+
			"user that runs caponier, or to root", path, owner)}
	}
	mode := info.Mode().Perm()
	others := mode & 0o022
	if known && owner == os.Getuid() && group == os.Getgid() {
		others &^= 0o020
	}
	if others != 0 {
		return untrusted{fmt.Sprintf("%s can be written by other users (mode %04o): chmod go-w %s",
			path, mode, path)}
	}
	return nil
}

func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return m.Type().String()
}

// Replace gives a file new contents, all or none of them. Until they are on the disk they are in
// another file in dir, which must be on the same file system.
func Replace(path string, data []byte, perm fs.FileMode, dir string) error {
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(perm), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
