package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// createFile makes a new file that survives a power cut once its content is synced. The lock on it
// says that its process lives.
func createFile(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err = lock(f, unix.LOCK_EX); err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making %s: %w", path, err), f.Close(), os.Remove(path))
	}
	return osFile{f}, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// living reports whether more may be written to the file. A file is made before it is locked, and
// locked before anything is written to it: without a byte in it, it says nothing about its process.
func living(f *os.File) bool {
	info, err := f.Stat()
	return err != nil || info.Size() == 0 || probe(f) != nil
}

// probe returns EWOULDBLOCK while the process that writes the file runs.
func probe(f *os.File) error {
	if err := lock(f, unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return err
	}
	return lock(f, unix.LOCK_UN)
}

func lock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}
