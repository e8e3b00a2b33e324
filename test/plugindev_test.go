package test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// spoken is what a process wrote so far.
type spoken struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *spoken) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(b)
}

// upTo waits until the process has written a text, and returns and forgets all up to it.
func (s *spoken) upTo(t *testing.T, text string) string {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		s.mu.Lock()
		all := s.buf.String()
		before, after, found := strings.Cut(all, text)
		if found {
			s.buf.Reset()
			s.buf.WriteString(after)
		}
		s.mu.Unlock()
		if found {
			return before + text
		}
		if time.Now().After(end) {
			t.Fatalf("it did not write %q:\n%s", text, all)
		}
	}
}

// developing starts plugin dev of a new plugin; end interrupts it.
func developing(t *testing.T, command func(...string) *exec.Cmd, args ...string) (dir string,
	said *spoken, end func()) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "hello")
	sdk, err := filepath.Abs("../sdk")
	must(t, err)
	if out, err := command("plugin", "new", dir, "--sdk", sdk).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	said = &spoken{}
	cmd := command(append([]string{"plugin", "dev", dir, "hello_kernel"}, args...)...)
	cmd.Stdout, cmd.Stderr = said, said
	must(t, cmd.Start())
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		must(t, cmd.Process.Signal(syscall.SIGINT))
		if err := cmd.Wait(); err != nil {
			t.Errorf("interrupted, it ended with %v", err)
		}
	}
	t.Cleanup(end)
	return dir, said, end
}

func change(t *testing.T, file, old, with string) {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	if !bytes.Contains(data, []byte(old)) {
		t.Fatalf("%s has no %q", file, old)
	}
	must(t, os.WriteFile(file, bytes.Replace(data, []byte(old), []byte(with), 1), 0o644))
}

const waiting = "waiting for a change\n"

// Each change of the source or of the answers shows the tool's new output. A compile error, or a
// claim that the lock would refuse, is reported, and the next change can fix it.
func TestPluginDevShowsWhatAChangeMakes(t *testing.T) {
	answers := filepath.Join(t.TempDir(), "answers.yaml")
	must(t, os.WriteFile(answers, []byte(
		"commands:\n  - argv: [uname, -r]\n    stdout: 6.8-one\n"), 0o644))
	command := func(args ...string) *exec.Cmd { return exec.Command(bin, args...) }
	dir, said, end := developing(t, command, "--answers", answers)
	main := filepath.Join(dir, "main.go")
	for _, step := range []struct{ file, old, with, want string }{
		{"", "", "", "runs 6.8-one."},
		{main, `" runs "`, `" has the kernel "`, "has the kernel 6.8-one."},
		{answers, "one", "two", "has the kernel 6.8-two."},
		{main, "func kernel(", "func kernel(oops", "main.go:"},
		{main, "func kernel(oops", "func kernel(", "has the kernel 6.8-two."},
		{main, `[]string{"uname"}`, `[]string{"unmae"}`, "unmae"},
		{main, `[]string{"unmae"}`, `[]string{"uname"}`, "has the kernel 6.8-two."},
	} {
		if step.file != "" {
			change(t, step.file, step.old, step.with)
		}
		if got := said.upTo(t, waiting); !strings.Contains(got, step.want) {
			t.Errorf("after %q there is no %q:\n%s", step.with, step.want, got)
		}
	}
	end()
	if _, err := os.Stat(filepath.Join(dir, "build", "hello.wasm")); err != nil {
		t.Error(err)
	}
}

// In the lab, the call is decided, journaled and executed, with a lock that only this process sees.
func TestPluginDevCallsThroughTheDoorOfALab(t *testing.T) {
	s := newSite(t)
	before := s.read(t, "plugins.lock")
	s.rewrite(t, "\ntiers:\n", "\ntiers:\n  \"tool:hello_kernel\": green\n")
	_, said, end := developing(t, s.command, `{"node":"pve1"}`, "--lab")
	if got := said.upTo(t, waiting); !strings.Contains(got, "pve1 runs ") {
		t.Errorf("no answer of the lab:\n%s", got)
	}
	end()
	if s.read(t, "plugins.lock") != before {
		t.Error("the site's lock has changed")
	}
	out, err := s.command("audit", "query", "--tool", "hello_kernel").Output()
	if err != nil || !strings.Contains(string(out), "hello_kernel") {
		t.Errorf("the journal has no call: %s %v", out, err)
	}
	if out, err := s.command("call", "hello_kernel", "{}").CombinedOutput(); err == nil {
		t.Errorf("another process has the tool: %s", out)
	}
}

// A node that is not on loopback is never contacted, by any route.
func TestPluginDevRefusesARealNode(t *testing.T) {
	for name, host := range map[string]string{"an address": "192.0.2.1", "a name": "pve.example",
		"a name that begins like one": "127.0.0.1.example"} {
		s := newSite(t)
		s.replace(t, s.config, `(?m)^host = "127.0.0.1"`, fmt.Sprintf("host = %q", host))
		out, err := s.command("plugin", "dev", s.dir, "hello_kernel", "--lab").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "is not on the loopback") {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	s := newSite(t)
	login := regexp.MustCompile(`(?m)^(host_key|identity_file) = .*\n`).FindAllString(
		s.read(t, "config.toml"), 2)
	s.add(t, "\n[[remote.nodes.jump]]\nhost = \"127.0.0.1\"\nport = 1\nuser = \"root\"\n"+
		strings.Join(login, ""))
	out, err := s.command("plugin", "dev", s.dir, "x", "--lab").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "is behind 127.0.0.1") {
		t.Errorf("a jump host: %v: %s", err, out)
	}
}
