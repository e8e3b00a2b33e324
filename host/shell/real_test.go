package shell

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/test/needs"
)

// realShells are the shells that texts and renderings are tried in. Under CI all must be installed.
var realShells = [][]string{
	{"dash"}, {"bash"}, {"bash", "--posix"}, {"busybox", "sh"}, {"ksh"}, {"mksh"},
	{"zsh"}, {"zsh", "--emulate", "sh"},
}

func shells(t testing.TB) [][]string {
	t.Helper()
	var found [][]string
	for _, argv := range realShells {
		if _, err := exec.LookPath(argv[0]); err == nil {
			found = append(found, argv)
		} else if os.Getenv("CI") == "true" {
			needs.Program(t, argv[0])
		}
	}
	if len(found) == 0 {
		needs.Skip(t, "no shell is installed")
	}
	return found
}

// bench is a folder in which a text can be run without harm: PATH holds only programs that log
// their words, the shell has no privileges, and files that it makes are noticed.
type bench struct{ root, bin, work, log string }

const recordEnd = "\x00\x01\x00"

func newBench(t testing.TB) *bench {
	root, err := os.MkdirTemp("", "shell")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	b := &bench{root, root + "/bin", root + "/work", root + "/log"}
	for _, dir := range []string{b.root, b.bin, b.work} {
		os.Mkdir(dir, 0o777)
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	helper := "#!/bin/sh\nprintf '%s\\0' \"${0##*/}\" \"$@\" '\001' >> \"$LOG\"\n"
	if err := os.WriteFile(root+"/helper", []byte(helper), 0o755); err != nil {
		t.Fatal(err)
	}
	return b
}

// name makes a program that logs its words. It reports false for a name that cannot be one, or that
// a shell runs itself.
func (b *bench) name(program string) bool {
	if len(program) > 200 || strings.Contains(program, "/") || program == "." || program == ".." ||
		inShells[program] || numeric[program] {
		return false
	}
	err := os.Symlink(b.root+"/helper", filepath.Join(b.bin, program))
	return err == nil || os.IsExist(err)
}

// inShells are commands that a shell runs itself and that are not in evaluating.
var inShells = words(`echo true false pwd cd : test [ printf kill login newgrp umask wait jobs cat
	ulimit type logout env head mkdir mkfifo mktemp mv rm rmdir sleep stty suspend tty uname chmod
	chown cmp cp cut date dirname fold getconf grep id join ln ls paste rev sync tail tee uniq wc
	basename builtin poll times stat`)

// run returns the programs that the shell starts for text, each as its words joined by NUL, sorted,
// and what it wrote to its output. n is the number of programs to wait for.
func (b *bench) run(t testing.TB, sh []string, text string, n int) (started []string, out string) {
	t.Helper()
	path, err := exec.LookPath(sh[0])
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(text, "-") || strings.HasPrefix(text, "+") {
		text = " " + text // it is no option of the shell
	}
	os.Remove(b.log)
	ctx, done := context.WithTimeout(t.Context(), 10*time.Second)
	defer done()
	cmd := exec.CommandContext(ctx, path, append(slices.Clone(sh[1:]), "-c", text)...)
	cmd.Env, cmd.Dir = []string{"PATH=" + b.bin, "LC_ALL=C.UTF-8", "LOG=" + b.log}, b.work
	cmd.WaitDelay = time.Second
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534,
			Gid: 65534}}
	}
	output, _ := cmd.CombinedOutput()
	data, _ := os.ReadFile(b.log)
	// ksh93 does not wait for the left side of a pipe
	for end := time.Now().Add(10 * time.Second); bytes.Count(data, []byte(recordEnd)) < n &&
		time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
		data, _ = os.ReadFile(b.log)
	}
	started = strings.Split(strings.TrimSuffix(string(data), recordEnd), recordEnd)
	slices.Sort(started)
	left, _ := os.ReadDir(b.work)
	for _, f := range left {
		t.Errorf("%s -c %q made the file %q", sh, text, f.Name())
		os.RemoveAll(filepath.Join(b.work, f.Name()))
	}
	return started, string(output)
}

// expected returns what starts when every program ends well: what stands after || does not.
func expected(calls []terms.Simple, joiners []string) []string {
	started, runs := []string{}, true
	for i, c := range calls {
		if i > 0 && joiners[i-1] != "|" {
			runs = joiners[i-1] != "||"
		}
		if runs {
			started = append(started, strings.Join(c.Argv, "\x00"))
		}
	}
	slices.Sort(started)
	return started
}

// agrees runs text and its rendering in real shells and compares the programs that they start, with
// all their words, with the calls that policy would decide on. It reports false when a program's
// name cannot be tried.
func (b *bench) agrees(t testing.TB, text string) bool {
	t.Helper()
	got := Lowerer{}.Script(text)
	for _, c := range got.Calls {
		if !b.name(c.Argv[0]) {
			return false
		}
	}
	if !got.Parsed {
		return true
	}
	_, around := lower(text)
	want := expected(got.Calls, around.joiners)
	for _, sh := range shells(t) {
		for _, sent := range []string{text, got.Rendered} {
			if sh[0] == "zsh" && len(sh) == 1 && sent == text {
				continue // zsh as itself is not a POSIX shell; it gets renderings only
			}
			if sh[0] == "busybox" && slices.ContainsFunc(got.Calls, isApplet) {
				continue
			}
			started, out := b.run(t, sh, sent, len(want))
			undecided := func(s string) bool { return s != "" && !slices.Contains(want, s) }
			if sh[0] == "ksh" && sent == text && !slices.ContainsFunc(started, undecided) {
				continue // it takes words such as case: and é: for its own, and starts less
			}
			if !slices.Equal(started, want) {
				t.Errorf("%s -c %q\nstarted %q\ndecided %q\nwrote %q", sh, sent, started, want, out)
			}
		}
	}
	return true
}

var applets = func() map[string]bool {
	out, _ := exec.Command("busybox", "--list").Output()
	return words(string(out))
}()

func isApplet(c terms.Simple) bool { return applets[c.Argv[0]] }

func TestRealShellsRunTheTextAsItWasLowered(t *testing.T) {
	b := newBench(t)
	for _, c := range ordinary {
		b.agrees(t, c.text)
	}
	for _, text := range differing {
		b.agrees(t, text)
	}
}

// differing are texts that shells read differently, or could. Lowering refuses the first kind.
var differing = []string{
	"a &>/dev/null b", "a >&2 b", "a >&1 b", "a |& b", "a <(b) c", "a 2>&1 b",
	"a >/dev/null b 2>&1 c", "a;b&&c||d|e", "a # b\nc", "a \\\n b", "a $'\\x62' c", "a $\"b\" c",
	"a b=c d", "a {b,c} d", "a; ! b", "time a", "coproc a b", "a ;;b", "a &&\n b",
	"a 1>/dev/null2 b",
	"a 2>/dev/null b", "a>/dev/null b", "a^b c", "a % b", "a == b", "a =b c", "a \"$\\\n(b)\"",
	"a \"$\\\n{HOME}\"", "a \"$\\\n((1+1))\"", "a $\\\n'a\\x41'", "a -- b #\\\nc d", "a #x\\\nb",
	"a 'b\\\nc'", "a\\\\\nb", "a #\\\\\nb", "repeat 3 a", "a b~ c", "a x=~ b", "a [b", "a b[c",
	"a -b!c",
	"a \"!b\"", "a ^b", "a b^", "a b#c", "a %b", "a @b", "a b,c", "a b:c", "a +b", "a b\\\tc",
	"a 2>/dev/null>/dev/null", "a 2 >/dev/null", "a\t|\tb", "a ||\n\n b", "a |\n# c\n b", "a;# b",
	"a;\n;",
	"foreach x", "end", "a && b || c && d | e", "select a", "a $", "a \"$\"", "a $ b", "a \"$ b\"",
	"a \"b$\"",
	"a $\"\"", "a $''", "a \"$'b'\"", "a '$'\"b\"", "a \\$b", "a \"\\a\"", "a \\a", "a '\\'",
	"a \"\\\\\"",
	"a \"\\`b\\`\"", "a é\\é", "a ''", "a \"\"", "a ''''", "a b''c", "a 1>&2", "a 2>&1>/dev/null",
	"a &", "a && # b\n c", "a; b;", "a '#' b", "a \\# b", "a \"#\" b", "a b\\ #c", "a \\\\#b",
	"a ;#\nb",
}
