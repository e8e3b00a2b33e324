package remote

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// gateShell runs commands through packaging/node/caponier-gate, changed by edit, as sshd does with
// a forced command. env is what sshd would have taken from the client.
func gateShell(t *testing.T, edit func(string) string, env ...string) sshtest.Options {
	t.Helper()
	text, err := os.ReadFile("../../packaging/node/caponier-gate")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for name, script := range map[string]string{"logger": ":",
		"pct": `printf '%s.' "$@"; locale charmap`} {
		file := filepath.Join(bin, name)
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := strings.Replace(string(text), "export PATH=", "export PATH="+bin+":", 1)
	script = strings.ReplaceAll(script, "$EUID = 0", "1 = 1") // no sudo here
	if edit != nil {
		script = edit(script)
	}
	file := filepath.Join(t.TempDir(), "caponier-gate")
	if err := os.WriteFile(file, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return sshtest.Options{Exec: func(
		ctx context.Context, command string, in io.Reader, out, errs io.Writer,
	) int {
		c := exec.CommandContext(ctx, file)
		c.Env = append([]string{"SSH_ORIGINAL_COMMAND=" + command}, env...)
		c.Stdout, c.Stderr = out, errs
		if c.Run() != nil && c.ProcessState == nil {
			return 255
		}
		return c.ProcessState.ExitCode()
	}}
}

func TestCharactersBeyondASCIIArriveOrAreRefused(t *testing.T) {
	if out, err := exec.Command("env", "LC_ALL=C.UTF-8", "locale",
		"charmap").Output(); err != nil ||
		string(out) != "UTF-8\n" {
		t.Fatalf("this machine has no C.UTF-8: %s %v", out, err)
	}
	uncomment := func(s string) string { return strings.ReplaceAll(s, "\n# \"", "\n  \"") }
	old := func(s string) string {
		return strings.Replace(uncomment(s), `  "'locale' 'charmap'"`, "", 1)
	}
	push := []string{"pct", "snapshot", "101", "a", "--description", "ünï ✓"}
	for name, c := range map[string]struct {
		o      sshtest.Options
		argv   []string
		stdout string // "" when it is refused
		words  string
	}{
		"the gate sets the locale": {gateShell(t, uncomment), push,
			"snapshot.101.a.--description.ünï ✓.UTF-8\n", ""},
		"whatever the client's locale was": {gateShell(t, uncomment, "LC_ALL=POSIX", "LANG=C"),
			push,
			"snapshot.101.a.--description.ünï ✓.UTF-8\n", ""},
		"a gate that cannot say": {gateShell(t, old), push, "", "Install the caponier-gate"},
		"a session with a locale": {sshtest.Options{Env: []string{"LC_ALL=C.UTF-8"}},
			[]string{"printf", "%s", "ünï ✓"}, "ünï ✓", ""},
		"a session without": {sshtest.Options{Env: []string{"LC_ALL=C"}},
			[]string{"printf", "%s", "ünï ✓"}, "", "AcceptEnv LANG LC_*"},
		"a session without, and an ASCII command": {sshtest.Options{Env: []string{"LC_ALL=C"}},
			[]string{"printf", "%s", "plain"}, "plain", ""},
		"a node without the program": {sshtest.Options{Env: []string{"PATH=/nowhere"}},
			[]string{"printf", "%s", "é"}, "", "not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			s := sshtest.New(t, c.o)
			r := newRemote(t, s)
			for range 2 {
				v, err := execute(t.Context(), r, c.argv...)
				if c.stdout == "" {
					refused(t, err, "locale", terms.Failed, "Nothing was sent", c.words)
				} else if err != nil || v.Stdout != c.stdout {
					t.Errorf("%+v, %v", v, err)
				}
			}
			probes := 0
			for _, ran := range s.Commands() {
				if ran == `'locale' 'charmap'` {
					probes++
				} else if c.stdout == "" && strings.Contains(ran, "✓") {
					t.Errorf("the node got %s", ran)
				}
			}
			if ask := strings.ContainsAny(strings.Join(c.argv, " "), "üé"); ask && c.stdout != "" &&
				probes != 1 ||
				!ask && probes != 0 {
				t.Errorf("%d probes", probes)
			}
		})
	}
}

// OpenSSH as Debian configures it takes the locale from the client.
func TestOpenSSHGetsALocale(t *testing.T) {
	for lines, want := range map[string]string{"AcceptEnv LANG LC_*": "UTF-8",
		"SetEnv LC_ALL=C": ""} {
		t.Run(lines, func(t *testing.T) {
			_, o := openSSH(t, lines)
			r := start(t, o)
			v, err := execute(t.Context(), r, "sh", "-c", "locale charmap; : é")
			if want == "" {
				refused(t, err, "locale", terms.Failed, "ANSI_X3.4-1968")
			} else if err != nil || strings.TrimSpace(v.Stdout) != want {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

// What a guard of the node refused did not run; whatever else a command prints or exits with, did.
func TestWhatTheNodesGuardRefusesIsAnError(t *testing.T) {
	const gatePath = "/usr/local/sbin/caponier-gate"
	for name, c := range map[string]struct {
		exit           int
		stdout, stderr string
		words          string // "" when it ran
	}{
		"the gate": {126, "",
			"caponier-gate: this key may not run that on this node (" + gatePath + ")\n",
			"does not list it"},
		"no gate, in bash": {127, "", "bash: line 1: " + gatePath +
			": No such file or directory\n", "Install it there"},
		"no gate, in dash": {127, "", "sh: 1: " + gatePath + ": not found\n",
			"Install it there"},
		"a gate that may not be run": {126, "", "bash: line 1: " + gatePath +
			": Permission denied\n", "mode 0755"},
		"sudo without a password": {1, "", "sudo: a password is required\n",
			"/etc/sudoers.d/caponier"},
		"sudo without a terminal": {1, "", "sudo: a terminal is required to read the " +
			"password; either use the -S option to read from standard input or configure an " +
			"askpass helper\n", "/etc/sudoers.d/caponier"},
		"sudo that lists other things": {1, "", "Sorry, user caponier is not allowed to execute " +
			"'/usr/sbin/pct list x' as root on pve1.\n", "/etc/sudoers.d/caponier"},
		"a gate without sudo": {127, "", gatePath + ": line 77: exec: sudo: not found\n",
			""},
		"a program that is not found":   {127, "", "bash: line 1: pct: command not found\n", ""},
		"a program that fails with 126": {126, "", "pct: cannot execute\n", ""},
		"other words and exit codes":    {1, "", "caponier-gate: x\n", ""},
		"output before the words":       {126, "some", "caponier-gate: x\n", ""},
		"words before the words":        {126, "", "error\ncaponier-gate: x\n", ""},
		"sudo's words and success":      {0, "", "sudo: a password is required\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := sshtest.New(t, sshtest.Options{Exec: func(
				ctx context.Context, command string, _ io.Reader, out, errs io.Writer,
			) int {
				if strings.HasPrefix(command, "printf '<%s>'") {
					return local(ctx, command, out)
				}
				fmt.Fprint(out, c.stdout)
				fmt.Fprint(errs, c.stderr)
				return c.exit
			}})
			v, err := execute(t.Context(), newRemote(t, s), "pct", "exec", "101")
			if c.words != "" {
				refused(t, err, "not_permitted_on_node", terms.Failed, "n1", c.words)
			} else if err != nil || v.Exit != c.exit || v.Stderr != c.stderr {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
	t.Run("the delivered script", func(t *testing.T) {
		r := newRemote(t, sshtest.New(t, gateShell(t, nil)))
		_, err := execute(t.Context(), r, "pct", "destroy", "101")
		refused(t, err, "not_permitted_on_node", terms.Failed, "caponier-gate")
		if v, err := execute(t.Context(), r, "pct", "list"); err != nil || v.Exit != 0 {
			t.Errorf("%+v, %v", v, err)
		}
	})
	t.Run("every command, when the gate is missing", func(t *testing.T) {
		s := sshtest.New(t, sshtest.Options{Shell: []string{"/bin/sh", "-c", gatePath +
			"-missing/caponier-gate", "sh"}})
		_, err := execute(t.Context(), newRemote(t, s), "pct", "list")
		refused(t, err, "not_permitted_on_node", terms.Failed, "Install it there")
	})
}

func TestSFTPThatDoesNotStart(t *testing.T) {
	for name, c := range map[string]struct {
		line, code, words string
	}{
		"behind a gate with sftp=no": {"echo 'caponier-gate: this key may not run that on this " +
			"node (/usr/local/sbin/caponier-gate)' >&2; exit 126", "not_permitted_on_node",
			"sftp=yes"},
		"no gate": {"/nowhere/caponier-gate", "not_permitted_on_node",
			"Install it"},
		"a start-up file that talks": {
			"echo Welcome to the machine; exec /usr/lib/openssh/sftp-server", "connection",
			".bashrc"},
		"nothing": {"exit 3", "connection", "did not start"},
	} {
		t.Run(name, func(t *testing.T) {
			_, o := openSSH(t, "ForceCommand "+c.line)
			_, err := do(t.Context(), start(t, o), abi.SFTPStat{OnNode: on("n1"), Path: "/"}, green)
			refused(t, err, c.code, terms.Failed, c.words)
			if strings.Contains(err.Error(), ".bashrc") != (c.words == ".bashrc") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestTheInventoryNamesAliases(t *testing.T) {
	r := start(t, Options{Workspace: t.TempDir(), KnownHosts: []string{os.DevNull},
		Nodes: []NodeOptions{
			{Name: "x", Login: Login{Host: "h", User: "root", Agent: true}},
			{Name: "y", Login: Login{Host: "h", User: "caponier", Agent: true}}}})
	if n := r.Nodes(); !slices.Equal(n[0].Aliases, []string{"y"}) ||
		!slices.Equal(n[1].Aliases, []string{"x"}) {
		t.Errorf("%+v", n)
	}
}
