package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestRealFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log(
			"not root, so no file system of its own; TestFullDiskRefusesAndRecovers has the same " +
				"with an injected fault")
		return
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,mode=0700"); err != nil {
		t.Logf(
			"no tmpfs here (%v); TestFullDiskRefusesAndRecovers has the same with an injected "+
				"fault",
			err)
		return
	}
	defer syscall.Unmount(dir, 0)
	j := open(t, Options{Dir: dir})
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	var written []string
	var err error
	for i := 0; err == nil; i++ {
		id := fmt.Sprint(i)
		if err = j.Intent(bg, rec(id, "intent"), true); err == nil {
			written = append(written, id)
		}
	}
	if !errors.Is(err, syscall.ENOSPC) || len(written) < 10 {
		t.Fatalf("after %d intents: %v", len(written), err)
	}
	small := rec("small", "outcome")
	small.Input, small.Principal = nil, strings.Repeat("x", 4096)
	if err := j.Outcome(bg, small); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("an outcome on a full disk: %v", err)
	}
	if err := j.Intent(bg, rec("refused", "intent"), false); err == nil {
		t.Error("an intent before its pending outcome")
	}
	os.Remove(ballast)
	if err := j.Intent(bg, rec("again", "intent"), true); err != nil {
		t.Errorf("with room again: %v", err)
	}
	j.Close()
	if r := verify(t, dir); !r.OK() {
		t.Error(r.Problems)
	}
	want := append(written, "small", "again")
	if got := strings.Fields(ids(all(t, dir))); !slices.Equal(got, want) {
		t.Errorf("%d records, want %d", len(got), len(want))
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: dir}); !errors.Is(err, syscall.EROFS) ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("a read-only journal: %v", err)
	}
}
