package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestFullIsBelowTheThreshold(t *testing.T) {
	if err := Full(t.TempDir()); err != nil {
		t.Error(err)
	}
	for dir, want := range map[string]string{
		"/proc":                               "cannot hold files",
		filepath.Join(t.TempDir(), "nothing"): "no such file",
	} {
		if err := Full(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Log("only root can make a small file system: ", err)
		return
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	if err := Full(dir); err != nil {
		t.Errorf("2 MiB: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), make([]byte, 3<<19), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Full(dir); err == nil || !strings.Contains(err.Error(), "is full: 512 KiB are free") {
		t.Errorf("half a MiB: %v", err)
	}
	if free, err := Room(dir); free != 1<<19 || err != nil {
		t.Errorf("room %d %v", free, err)
	}
}
