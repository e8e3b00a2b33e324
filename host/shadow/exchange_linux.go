package shadow

import "golang.org/x/sys/unix"

// exchange gives each of two folders the name of the other at once: renameat2(2).
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}
