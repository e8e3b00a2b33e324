package pvelab

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// TestMain builds pvelab, which sets shells up and which the installed wrappers start. It is built
// without the race detector, which writes warnings to stderr where there is no /proc.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "pvelab")
	if err == nil {
		Program = filepath.Join(dir, "pvelab")
		build := exec.Command("go", "build", "-o", Program, "./cmd/pvelab")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building pvelab:", err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func install(t *testing.T, effects string) (state, bin string) {
	t.Helper()
	state, bin = t.TempDir(), t.TempDir()
	if err := Install(t.Context(), Options{State: state, NodeRoot: "/", Effects: effects}, "pve1",
		bin); err != nil {
		t.Fatal(err)
	}
	return state, bin
}

func TestInstalledWrappersRunTheSimulation(t *testing.T) {
	effects := filepath.Join(t.TempDir(), "effects")
	_, bin := install(t, effects)
	dir := t.TempDir()
	run := func(in string, argv ...string) result {
		cmd := exec.Command(filepath.Join(bin, argv[0]), argv[1:]...)
		var out, errw bytes.Buffer
		cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, strings.NewReader(in), &out, &errw
		cmd.Env = []string{"SECRET_ON_HOST=1", "PATH=/usr/bin:/bin"}
		err := cmd.Run()
		if x, ok := err.(*exec.ExitError); err != nil && !ok {
			t.Fatal(err)
		} else if ok {
			return result{x.ExitCode(), out.String(), errw.String()}
		}
		return result{0, out.String(), errw.String()}
	}
	if err := os.WriteFile(filepath.Join(dir, "local"), []byte("body\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		claim string
		argv  []string
		in    string
		want  result
	}{
		{"exit codes and texts pass", []string{"pct", "start", "101"}, "",
			result{255, "", "CT 101 already running\n"}},
		{"words pass as they are", []string{"pct", "exec", "105", "--", "sh", "-c",
			"echo \"$1|$2\"", "sh", "a b", "'$(id)"}, "", result{0, "a b|'$(id)\n", ""}},
		{"input passes", []string{"pct", "exec", "105", "--", "cat"}, "hello",
			result{0, "hello", ""}},
		{"the environment leaks as it does in truth",
			[]string{"pct", "exec", "105", "--", "sh", "-c", "echo $SECRET_ON_HOST"}, "",
			result{0, "1\n", ""}},
		{"push reads the machine's file", []string{"pct", "push", "105", "local", "/root/f"}, "",
			result{0, "", ""}},
		{"and it arrived", []string{"pct", "exec", "105", "--", "cat", "/root/f"}, "",
			result{0, "body\n", ""}},
		{"stop changes the state", []string{"pct", "stop", "105"}, "", result{0, "", ""}},
		{"which the next program sees", []string{"pct", "status", "105"}, "",
			result{0, "status: stopped\n", ""}},
		{"qm", []string{"qm", "shutdown", "200"}, "", result{0, "", "VM 200 not running\n\n"}},
		{"pvesm", []string{"pvesm", "status", "--storage", "nope"}, "",
			result{255, "", "400 Parameter verification failed.\nstorage: No such storage.\n" +
				"pvesm status  [OPTIONS]\n"}},
		{"pvecm", []string{"pvecm", "nodes"}, "", result{0, "\nMembership information\n" +
			"----------------------\n    Nodeid      Votes Name\n         1          1 pve1 " +
			"(local)\n         2          1 pve2\n", ""}},
		{"pvenode", []string{"pvenode", "wakeonlan", "pve1"}, "",
			result{2, "", "'pve1' is local node, cannot wake my self!\n"}},
		{"pvesh", []string{"pvesh", "get", "/nodes/pve2/lxc/999/config", "--output-format", "json"},
			"", result{2, "", "proxy handler failed: Configuration file " +
				"'nodes/pve2/lxc/999.conf' does not exist\n"}},
	} {
		if got := run(tt.in, tt.argv...); got != tt.want {
			t.Errorf("%s: %q\n want %+v\n  got %+v", tt.claim, tt.argv, tt.want, got)
		}
	}
	b, err := os.ReadFile(effects)
	if err != nil || bytes.Count(b, []byte("\n")) != 14 ||
		!bytes.Contains(b, []byte(`"argv":["pct","stop","105"]`)) {
		t.Errorf("effects: %v\n%s", err, b)
	}
}

func TestTheSimulationBehindARealSSHServer(t *testing.T) {
	_, bin := install(t, "")
	srv := sshtest.StartOpenSSH(t, "SetEnv PATH="+bin+":/usr/bin:/bin")
	b, err := os.ReadFile(srv.ClientFile)
	if err != nil {
		t.Fatal(err)
	}
	k, err := ssh.ParsePrivateKey(b)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ssh.Dial(
		"tcp",
		srv.Addr,
		&ssh.ClientConfig{
			User:    srv.User,
			Auth:    []ssh.AuthMethod{ssh.PublicKeys(k)},
			Timeout: 10 * time.Second,
			// it was made for this test alone
			HostKeyCallback: func(string, net.Addr, ssh.PublicKey) error { return nil },
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := ask(t, c, "pct list | head -n 2", ""); !strings.HasSuffix(
		got.stdout,
		"\n101        running                 web01               \n",
	) {
		t.Errorf("pct list: %+v", got)
	}
	f, err := sftp.NewClient(c)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	name := filepath.Join(t.TempDir(), "staged")
	w, err := f.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("through a real sshd\n")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, c, "pct push 105 --perms 0640 --user 33 --group 0 -- "+name+
		" /root/x; pct exec 105 -- sh -c 'ls -ln /root/x; cat /root/x'", ""); !strings.HasPrefix(
		got.stdout,
		"-rw-r-----    1 33       0               20 ",
	) ||
		!strings.HasSuffix(got.stdout, "\nthrough a real sshd\n") ||
		got.stderr != "" {
		t.Errorf("push: %+v", got)
	}
	if got := ask(t, c, "pct pull 105 -- /root/x "+name+".back; cat "+name+".back",
		""); got != (result{0, "through a real sshd\n", ""}) {
		t.Errorf("pull: %+v", got)
	}
}

func TestTheProgramSaysReadyAndEndsOnSIGTERM(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(
		Program,
		"serve",
		"--listen",
		"127.0.0.1:0",
		"--state",
		dir,
		"--effects",
		filepath.Join(dir, "effects"),
		"--write-config",
		filepath.Join(dir, "config.toml"),
		"--plugins",
		"p",
		"--lock",
		"l",
		"--site",
		"s",
	)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 200)
	n, err := out.Read(buf)
	if got := string(buf[:n]); err != nil || !strings.HasPrefix(got, "ready 127.0.0.1:") {
		t.Errorf("first line: %q, %v", got, err)
	}
	conf, err := os.ReadFile(filepath.Join(dir, "config.toml"))
	if err != nil {
		t.Error(err)
	}
	wd, _ := os.Getwd()
	for _, want := range []string{"accept_risks = true\n", "[policy]\nsite = \"" + wd + "/s\"\n",
		"[plugin]\nlock = \"" + wd + "/l\"\ndir = \"" + wd + "/p\"\n", "[audit]\ndir = \"" + dir +
			"/journal\"\n",
		"[remote]\nworkspace = \"" + dir + "/workspace\"\n",
		"[[remote.nodes]]\nname = \"pve1\"\ncluster = \"lab\"\nhost = \"127.0.0.1\"\nport = " +
			strings.TrimSpace(strings.TrimPrefix(string(buf[:n]), "ready 127.0.0.1:")) + "\n",
		"host_key = \"SHA256:", "default = true\n\n[[remote.nodes]]\nname = \"pve2\"\n"} {
		if !strings.Contains(string(conf), want) {
			t.Errorf("the configuration lacks %q:\n%s", want, conf)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the program ended with %v", err)
	}
}
