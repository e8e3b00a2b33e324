package watch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// follow returns what Follow tells, one after the other.
func follow(t *testing.T, f Files) <-chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	told, done := make(chan error, 64), make(chan struct{})
	go func() {
		defer close(done)
		f.Follow(ctx, func(missed error) { told <- missed })
	}()
	t.Cleanup(func() { cancel(); <-done })
	return told
}

func of(dirs ...string) func() ([]string, error) {
	return func() ([]string, error) { return dirs, nil }
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// next waits for one word of Follow, which must come before the next look.
func next(t *testing.T, told <-chan error) error {
	t.Helper()
	select {
	case err := <-told:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was told")
		return nil
	}
}

func quiet(t *testing.T, told <-chan error) {
	t.Helper()
	select {
	case err := <-told:
		t.Fatalf("told of nothing: %v", err)
	case <-time.After(4 * settle):
	}
}

func TestEachChangeIsReportedOnce(t *testing.T) {
	dir := t.TempDir()
	told := follow(t, Files{What: "x", Dirs: of(dir)})
	if err := next(t, told); err != nil {
		t.Fatal("at once: ", err)
	}
	quiet(t, told)
	for n := range 5 {
		write(t, filepath.Join(dir, "a"), strings.Repeat("x", n))
	}
	if err := next(t, told); err != nil {
		t.Error(err)
	}
	quiet(t, told)
	write(t, filepath.Join(dir, ".a.swp"), "an editor's")
	quiet(t, told)
}

// A directory that another takes the place of has no events any more.
func TestAReplacedDirectoryIsFound(t *testing.T) {
	every = 300 * time.Millisecond
	t.Cleanup(func() { every = 5 * time.Second })
	top := t.TempDir()
	dir, other := filepath.Join(top, "site"), filepath.Join(top, "other")
	for _, d := range []string{dir, other} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(d, "a"), d)
	}
	told := follow(t, Files{What: "x", Dirs: of(dir)})
	if err := next(t, told); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(dir, dir+".old"), os.Rename(other, dir)); err != nil {
		t.Fatal(err)
	}
	if err := next(t, told); err != nil {
		t.Error(err)
	}
	write(t, filepath.Join(dir, "a"), "in the new one")
	if err := next(t, told); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for err := next(t, told); err == nil || !strings.Contains(err.Error(), "following x: "); {
		err = next(t, told)
	}
}

// A file system that hangs is told of, once, and its change is told when it is back.
func TestAHangingCheckIsReported(t *testing.T) {
	every = 200 * time.Millisecond
	t.Cleanup(func() { every = 5 * time.Second })
	dir, hang, ask := t.TempDir(), make(chan struct{}), make(chan bool, 1)
	told := follow(t, Files{What: "x", Dirs: func() ([]string, error) {
		select {
		case <-ask:
			<-hang
		default:
		}
		return []string{dir}, nil
	}})
	if err := next(t, told); err != nil {
		t.Fatal(err)
	}
	ask <- true
	if err := next(t, told); err == nil || !strings.Contains(err.Error(), "takes longer than") {
		t.Errorf("%v", err)
	}
	quiet(t, told)
	write(t, filepath.Join(dir, "a"), "x")
	close(hang)
	if err := next(t, told); err != nil {
		t.Error(err)
	}
}

func TestWithinEndsInTime(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	_, err := Within(t.Context(), 10*time.Millisecond, "reading",
		func(context.Context) (int, error) {
			<-hang
			return 1, nil
		})
	if err == nil || err.Error() != "reading took longer than 10ms" {
		t.Error(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // what would end at once is not even begun
		_, err := Within(over, time.Minute, "reading",
			func(context.Context) (int, error) { t.Error("it was begun"); return 7, nil })
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	v, err := Within(t.Context(), time.Minute, "reading",
		func(context.Context) (int, error) { return 7, os.ErrClosed })
	if v != 7 || err != os.ErrClosed {
		t.Error(v, err)
	}
}
