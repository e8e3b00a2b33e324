package freeze

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// Another process finds a freeze at its next decision, and no longer after it was removed.
func TestProcessesShareTheList(t *testing.T) {
	dir := t.TempDir()
	ours, theirs := In(dir), In(dir)
	if got := ours.Mode(t.Context()); got == nil || len(got) != 0 {
		t.Fatalf("before: %v, want an empty list, which policy takes for no freeze", got)
	}
	for _, z := range []terms.Freeze{{Kind: "all", Reason: "why"},
		{Kind: "principal", Name: "../a b"},
		{Kind: "tool", Name: "delete_guest"}, {Kind: "node", Name: "pve2", Reason: "disk"}} {
		err := theirs.Add(Freeze{Kind: z.Kind, Name: z.Name, Reason: z.Reason, Since: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		if got := ours.Mode(t.Context()); !reflect.DeepEqual(got, []terms.Freeze{z}) {
			t.Errorf("%v: %v", z, got)
		}
		if was, err := theirs.Remove(z.Kind, z.Name); !was || err != nil {
			t.Errorf("%v: removing: %v, %v", z, was, err)
		}
		was, err := theirs.Remove(z.Kind, z.Name)
		if left := ours.Mode(t.Context()); was || err != nil || len(left) != 0 {
			t.Errorf("%v: removed, but: %v, %v, %v", z, was, err, left)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".new-*")); err != nil || left != nil {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// What cannot be read has no kind that policy knows, which freezes everything.
func TestUnreadableFilesFreezeEverything(t *testing.T) {
	for name, put := range map[string]func(file string) error{
		"broken": func(f string) error { return os.WriteFile(f, []byte("{"), 0o600) },
		"other name": func(f string) error {
			return os.WriteFile(f, []byte(`{"scope":"tool"}`),
				0o600)
		},
		"folder":    func(f string) error { return os.Mkdir(f, 0o700) },
		"FIFO":      func(f string) error { return syscall.Mkfifo(f, 0o600) },
		"dead link": func(f string) error { return os.Symlink("nowhere", f) },
	} {
		l := In(t.TempDir())
		if err := os.Mkdir(l.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := put(filepath.Join(l.dir, "all")); err != nil {
			t.Fatal(err)
		}
		got := l.Mode(t.Context())
		if len(got) != 1 || got[0].Kind != "?" || !strings.Contains(got[0].Reason, "delete it") {
			t.Errorf("%s: %v", name, got)
		}
	}
	l := In(t.TempDir())
	if err := os.WriteFile(l.dir, nil, 0o600); err != nil { // where the directory should be
		t.Fatal(err)
	}
	if got := l.Mode(t.Context()); len(got) != 1 || got[0].Kind != "all" {
		t.Errorf("a list that cannot be read: %v", got)
	}
}
