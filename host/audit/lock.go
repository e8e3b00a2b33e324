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

// living reports whether the process that writes the file still runs.
func living(f *os.File) bool {
	err := lock(f, unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		err = lock(f, unix.LOCK_UN)
	}
	return errors.Is(err, unix.EWOULDBLOCK)
}

func lock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}
