//go:build unix

package pvelab

import (
	"os"
	"syscall"
)

// dupFD copies a descriptor without taking f out of the runtime's poller, as f.Fd would.
func dupFD(f *os.File) (uintptr, error) {
	c, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	n, derr := -1, error(nil)
	if err := c.Control(func(fd uintptr) {
		if n, derr = syscall.Dup(int(fd)); derr == nil {
			syscall.CloseOnExec(n)
		}
	}); err != nil {
		return 0, err
	}
	return uintptr(n), derr
}
