package shell

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Quoting does not reach a shell's own commands: this is why the list is there.
func TestQuotedWordsOfBuiltinsAreCode(t *testing.T) {
	proof := filepath.Join(t.TempDir(), "ran")
	argv := []string{"printf", "-v", "a[$(touch " + proof + ")]", "x"}
	if _, err := exec.LookPath("bash"); err == nil {
		_ = exec.Command("bash", "-c", Quote(argv)).Run()
		if _, err := os.Stat(proof); err != nil {
			t.Error("bash no longer evaluates the operand of printf -v: the list may be shorter")
		}
	}
	if got := (Lowerer{}).Argv(argv); got.Parsed {
		t.Error("printf -v is sent")
	}
}

// Every command that a real shell has inside itself is refused, or leaves hostile operands alone.
func TestAllowedBuiltinsDoNotEvaluateTheirWords(t *testing.T) {
	lists := map[string]string{
		"bash": "compgen -b",
		"zsh":  "print -rl -- ${(k)builtins}",
		"mksh": "builtin",
		"ksh":  "builtin",
	}
	asked := 0
	for sh, list := range lists {
		out, err := exec.Command(sh, "-c", list).Output()
		if err != nil {
			continue // this shell is not here
		}
		for name := range strings.FieldsSeq(string(out)) {
			name = filepath.Base(name)
			dir := t.TempDir()
			code := "a[$(touch ran)]"
			for _, words := range [][]string{{code}, {"-v", code, "x"}, {"-v" + code},
				{code, "-eq", "0"}, {"1", "-eq", code}, {"%d", code}, {"-n", code}, {"-p", code},
				{"-c", "touch ran"}, {"-t", code}, {"-9", code}, {"touch ran"}, {"touch", "ran"}} {
				if name == "kill" || name == "stop" {
					words = append([]string{"-0"}, words...) // no signal to anybody
				}
				argv := append([]string{name}, words...)
				got := Lowerer{}.Argv(argv)
				if !got.Parsed {
					continue
				}
				asked++
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				cmd := exec.CommandContext(ctx, sh, "-c", got.Rendered)
				// some of them signal their whole group
				cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Setsid: true}
				_ = cmd.Run()
				cancel()
				if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
					t.Errorf("%s ran code out of %q", sh, argv)
					break
				}
			}
		}
	}
	if _, err := exec.LookPath("bash"); err == nil && asked < 50 {
		t.Errorf("only %d commands were tried", asked)
	}
}

func TestNamesAreWrittenOnce(t *testing.T) {
	for name := range numeric {
		if evaluating[name] {
			t.Errorf("%s is in both lists", name)
		}
	}
	if !posixShells["sh"] {
		t.Error("sh is no shell")
	}
}
