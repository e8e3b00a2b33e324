package audit

import (
	"os"

	"golang.org/x/sys/unix"
)

// osFile syncs the data and the size, not the times.
type osFile struct{ *os.File }

func (f osFile) Sync() error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}
