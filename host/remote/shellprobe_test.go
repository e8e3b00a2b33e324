package remote

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// nastyWords are words that a shell which is not quoted for would read as something else, and
// random ones.
func nastyWords(n int) []string {
	words := []string{
		"",
		"-n",
		"--",
		"a b",
		"'",
		`"`,
		`\`,
		`\\`,
		`\'`,
		"$HOME",
		"$(id)",
		"`id`",
		"*",
		"?",
		"~",
		"!",
		"!!",
		"#x",
		"a\nb",
		"\n",
		"\t",
		"a\rb",
		"é€😀",
		"\x01\x1b[31m",
		";id",
		"|id",
		"&",
		">x",
		"{a,b}",
		"[a]",
		"%s%n",
		"=ls",
		"^x^y",
		"\\n",
		"a'b'c",
		"''",
		"\x7f",
		"(x)",
		"x=y",
		"${x:-y}",
		strings.Repeat("'", 50),
	}
	r := rand.New(rand.NewPCG(1, 2))
	for len(words) < n {
		const from = "abc '\"\\$`!*?~;&|<>(){}[]#=%^\n\t\r-@:,./\u00e9"
		var w strings.Builder
		for range r.IntN(12) {
			w.WriteByte(from[r.IntN(len(from)-2)])
		}
		words = append(words, w.String())
	}
	return words
}

func TestEveryPOSIXShellReadsTheWordsAsTheyAre(t *testing.T) {
	words := nastyWords(250)
	var want strings.Builder
	for _, w := range words {
		fmt.Fprintf(&want, "<%s>", w)
	}
	for _, sh := range [][]string{{"bash", "-c"}, {"dash", "-c"}, {"busybox", "sh", "-c"},
		{"ksh", "-c"}, {"zsh", "-c"}} {
		t.Run(sh[0], func(t *testing.T) {
			path, err := exec.LookPath(sh[0])
			if err != nil {
				sshtest.Missing(t, sh[0])
			}
			s := sshtest.New(
				t,
				sshtest.Options{
					Shell: append([]string{path}, sh[1:]...),
					Env:   []string{"HOME=/nonexistent"},
				},
			)
			r := newRemote(t, s)
			v := mustExec(t, r, append([]string{"/usr/bin/printf", "<%s>"}, words...)...)
			if got := v.Stdout; got != want.String() {
				t.Errorf("got  %q\nwant %q", got, want.String())
			}
		})
	}
}

func TestOtherShellsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		shell []string
		words []string
	}{
		{"fish", []string{"fish", "-c"}, []string{"POSIX", "usermod"}},
		{"tcsh", []string{"tcsh", "-c"}, []string{"POSIX", "usermod"}},
		{"a menu", []string{"/bin/sh", "-c", "echo 'Choose 1 to 9:'", "menu"},
			[]string{"POSIX", "Choose 1"}},
		{"a shell whose start-up file talks",
			[]string{"/bin/sh", "-c", `echo Welcome; eval "$1"`, "sh"},
			[]string{"Welcome", ".bashrc"}},
		{"a shell that expands what is quoted",
			[]string{"/bin/sh", "-c", `x=$(printf %s "$1" | tr -d "'"); eval "$x"`, "sh"},
			[]string{"POSIX"}},
		{"a shell that does nothing", []string{"/bin/true"}, []string{"POSIX"}},
		{"a shell that is not allowed to log in",
			[]string{"/bin/sh", "-c", "echo 'This account is currently not available.'; exit 1",
				"sh"}, []string{"not available"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := exec.LookPath(c.shell[0]); err != nil &&
				(c.name == "fish" || c.name == "tcsh") {
				t.Logf("%s is not installed; the rows below prove the same", c.shell[0])
				return
			}
			s := sshtest.New(t, sshtest.Options{Shell: c.shell})
			r := newRemote(t, s)
			for range 2 {
				_, err := execute(t.Context(), r, "echo", "effect")
				code := "shell"
				if strings.Contains(c.name, "talks") {
					code = "shell_output"
				}
				refused(t, err, code, terms.Failed, append(c.words, "n1")...)
			}
			for _, cmd := range s.Commands() {
				if strings.Contains(cmd, "effect") {
					t.Errorf("the node got %q", cmd)
				}
			}
			if _, err := do(t.Context(), r, abi.SFTPStat{OnNode: on("n1"), Path: "/"},
				green); err != nil {
				t.Errorf("files need no shell, but: %v", err)
			}
		})
	}
}
