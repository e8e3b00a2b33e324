package sweep

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func name(digit string) string { return "/tmp/caponier-" + strings.Repeat(digit, 32) }

func open(t *testing.T, dir string) *Book {
	t.Helper()
	b, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestMain lets the test binary be a process that records something and is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("SWEEP_DIR"); dir != "" {
		b, err := Open(dir)
		if err == nil {
			err = errors.Join(b.Made("n1", name("a")), b.Made("", "agent/.caponier-partial-"+strings.Repeat("b", 32)))
		}
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString("made\n")
		select {}
	}
	os.Exit(m.Run())
}

func swept(b *Book, clean func(Record) error) (names []string, failed int) {
	failed = b.Sweep(context.Background(), func(_ context.Context, r Record) error {
		names = append(names, r.Node+":"+r.Name)
		return clean(r)
	})
	slices.Sort(names)
	return names, failed
}

func TestWhatAKilledProcessRecordedIsSweptAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "book")
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "SWEEP_DIR="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	b := open(t, dir)
	defer b.Close()
	good := func(Record) error { return nil }
	if names, _ := swept(b, good); len(names) != 0 {
		t.Errorf("of a process that lives: %v", names)
	}
	child.Process.Kill()
	child.Wait()
	names, failed := swept(b, good)
	if want := []string{":agent/.caponier-partial-" + strings.Repeat("b", 32), "n1:" + name("a")}; !slices.Equal(names, want) || failed != 0 {
		t.Errorf("swept %v (%d failed), want %v", names, failed, want)
	}
	if names, _ := swept(b, good); len(names) != 0 {
		t.Errorf("swept again: %v", names)
	}
	if left, _ := filepath.Glob(dir + "/*"); len(left) != 2 { // host, and this process's lock
		t.Errorf("left: %v", left)
	}
}

func TestWhatCannotBeRemovedStaysRecorded(t *testing.T) {
	dir := t.TempDir()
	old := open(t, dir)
	for i, n := range []string{"away", "away", "here"} {
		if err := old.Made(n, name(string(rune('1'+i)))); err != nil {
			t.Fatal(err)
		}
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	b := open(t, dir)
	defer b.Close()
	if old.HostID() != b.HostID() || len(b.HostID()) != 8 {
		t.Errorf("hosts %q and %q", old.HostID(), b.HostID())
	}
	names, failed := swept(b, func(r Record) error {
		if r.Node == "away" {
			return errors.New("no answer")
		}
		return nil
	})
	if len(names) != 2 || failed != 2 {
		t.Errorf("asked for %v, %d failed: a node that is away is asked once", names, failed)
	}
	if names, failed := swept(b, func(Record) error { return nil }); len(names) != 2 || failed != 0 {
		t.Errorf("when it is back: %v, %d", names, failed)
	}
}

func TestWhatIsInUseStays(t *testing.T) {
	b := open(t, t.TempDir())
	defer b.Close()
	if err := b.Made("n1", name("1")); err != nil {
		t.Fatal(err)
	}
	if names, failed := swept(b, func(Record) error { return ErrInUse }); len(names) != 1 || failed != 0 {
		t.Errorf("%v, %d", names, failed)
	}
	b.Removed("n1", name("1"))
	if left, err := b.Left(); len(left) != 0 || err != nil {
		t.Errorf("%v, %v", left, err)
	}
	if err := b.Made("n1", "/tmp/x"); err == nil {
		t.Error("a name without its random part was recorded")
	}
}

func TestABookThatOthersCouldWriteIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if b, err := Open(dir); err == nil {
		b.Close()
		t.Error("it was opened")
	}
}
