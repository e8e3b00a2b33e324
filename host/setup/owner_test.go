package setup

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// owned returns owner, group and mode of a file.
func owned(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%d:%d %s", st.Uid, st.Gid, info.Mode())
}
