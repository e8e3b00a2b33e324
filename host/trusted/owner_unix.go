//go:build unix

package trusted

import (
	"io/fs"
	"syscall"
)

// owners returns the user and the group of a file.
func owners(info fs.FileInfo) (user, group int, known bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(st.Uid), int(st.Gid), true
}
