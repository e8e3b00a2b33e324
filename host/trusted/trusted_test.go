//go:build unix

package trusted

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/needs"
)

func TestOnlyFilesOfThisUserOrRootAreTrusted(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	file := func(name string, mode os.FileMode) string {
		if err := errors.Join(os.WriteFile(at(name), []byte("x"), mode),
			os.Chmod(at(name), mode)); err != nil {
			t.Fatal(err)
		}
		return at(name)
	}
	made := func(err error, name string) string {
		if err != nil {
			t.Fatal(err)
		}
		return at(name)
	}
	private := file("private", 0o600)
	open := file("open", 0o666)
	for name, c := range map[string]struct{ path, why string }{
		"private file":              {private, ""},
		"file that all may read":    {file("readable", 0o644), ""},
		"file of root":              {"/etc/passwd", ""},
		"file of the user's group":  {file("group", 0o664), ""},
		"file that all may write":   {open, "can be written by other users (mode 0666)"},
		"link to a private file":    {made(os.Symlink(private, at("good")), "good"), ""},
		"link to an untrusted file": {made(os.Symlink(open, at("bad")), "bad"), "can be written"},
		"FIFO":                      {made(syscall.Mkfifo(at("fifo"), 0o600), "fifo"), "a FIFO"},
		"link to a device": {made(os.Symlink("/dev/zero", at("zero")), "zero"),
			"a device"},
		"directory":    {dir, "a directory"},
		"missing file": {at("none"), "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			done := within(func() error { _, err := Read(c.path, 1<<20); return err })
			for what, err := range map[string]error{"File": File(c.path), "Read": <-done} {
				switch {
				case c.why == "" && err != nil:
					t.Errorf("%s refuses it: %v", what, err)
				case c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)):
					t.Errorf("%s: %v, want %q", what, err, c.why)
				case c.why != "" && c.why != "no such file" && !errors.Is(err, ErrUntrusted):
					t.Errorf("%s: %v does not match ErrUntrusted", what, err)
				}
			}
		})
	}
}

// within runs f and fails by a timeout instead of hanging.
func within(f func() error) <-chan error {
	done := make(chan error, 2)
	time.AfterFunc(5*time.Second, func() { done <- errors.New("blocked") })
	go func() { done <- f() }()
	return done
}

func TestFilesOfOtherUsersAreRefused(t *testing.T) {
	if os.Getuid() != 0 {
		needs.Skip(t, "only root can give a file away")
	}
	path := filepath.Join(t.TempDir(), "theirs")
	err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 12345, 12345))
	if err != nil {
		t.Fatal(err)
	}
	if err := File(path); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
		t.Errorf("a file of user 12345: %v", err)
	}
}

func TestDirectoriesThatOthersCanWriteAreRefused(t *testing.T) {
	dir := t.TempDir()
	if err := Dir(dir); err != nil {
		t.Errorf("a directory of this user is refused: %v", err)
	}
	for _, mode := range []os.FileMode{0o777, os.ModeSticky | 0o777} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := Dir(dir); err == nil || !strings.Contains(err.Error(), "written by other users") {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
	if err := Dir("/etc/passwd"); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a file as directory: %v", err)
	}
}

func TestReadInStaysBelowItsRoot(t *testing.T) {
	dir := t.TempDir()
	inside, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "a"), []byte("text"), 0o600),
		os.Symlink("a", filepath.Join(dir, "b")),
		os.Symlink("/etc/passwd", filepath.Join(dir, "out")),
		syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if data, err := ReadIn(inside, "b", 4); err != nil || string(data) != "text" {
		t.Errorf("a link inside: %q, %v", data, err)
	}
	if _, err := ReadIn(inside, "a", 3); err == nil || !strings.Contains(err.Error(),
		"more than 3") {
		t.Errorf("a file above the limit: %v", err)
	}
	if _, err := ReadIn(inside, "out", 1<<20); err == nil || !strings.Contains(err.Error(),
		"escapes") {
		t.Errorf("a link out of the folder: %v", err)
	}
	done := within(func() error { _, err := ReadIn(inside, "fifo", 1); return err })
	if err := <-done; err == nil || !strings.Contains(err.Error(), "a FIFO") {
		t.Errorf("a FIFO: %v", err)
	}
}
