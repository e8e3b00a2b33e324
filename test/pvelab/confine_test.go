package pvelab

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pkg/sftp"
)

// What a lab's user types must reach neither a file nor a program of the machine.
func TestNothingReachesTheMachinesFiles(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("TOPSECRET\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("LAB_HOST_SECRET", "TOPSECRET")
	l := startLab(t, Options{})
	c := dial(t, l, l.Addr)
	for _, text := range []string{
		"cat " + secret, "cat < " + secret, "echo $(<" + secret + ")", ". " + secret, "source " +
			secret, "bash " + secret, "sh < " + secret,
		"ln -s " + secret + " /tmp/l; cat /tmp/l; cat < /tmp/l", "ln -s / /tmp/r; ls /tmp/r" +
			outside, "cd /tmp/r" + outside + " && cat secret",
		"cat ../../../../../../../../.." + secret, "cd " + outside + " && cat secret", "echo " +
			outside + "/*", "cat /proc/self/environ", "env", "export -p", "set",
		"cat <(cat " + secret + ")", "head -c 100 " + secret, "tail " + secret, "grep -r . " +
			outside, "cp " + secret + " /tmp/x; cat /tmp/x", "mv " + secret + " /tmp/y; cat /tmp/y",
		"sed -n 1p " + secret, "dd if=" + secret, "sha256sum " + secret + " | grep -c 6",
		"read x < " + secret + "; echo $x", "mapfile -t a < " + secret + "; echo ${a[0]}",
		"[ -e " + secret + " ] && echo TOPSECRET", "test -r " + secret + " && echo TOPSECRET",
		"pct push 105 " + secret + " /root/s; pct exec 105 -- cat /root/s",
		"pct exec 105 -- sh -c 'cat " + secret + "; ln -s " + secret + " /root/q; cat /root/q'",
		"pct pull 105 " + secret + " /tmp/z; cat /tmp/z",
		"echo pwned > " + secret, "rm -rf " + outside, "rm -rf /tmp/r" + outside, "chmod 777 " +
			secret, "touch " + outside + "/new", "mkdir -p " + outside + "/d", "exec 3< " + secret,
	} {
		r := ask(t, c, text, "")
		if strings.Contains(r.stdout+r.stderr, "TOPSECRET") {
			t.Errorf("%s\n gave %+v", text, r)
		}
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "TOPSECRET\n" {
		t.Errorf("the machine's file afterwards: %q, %v", b, err)
	}
	if fi, err := os.Stat(secret); err != nil || fi.Mode().Perm() != 0o644 {
		t.Errorf("the machine's file afterwards: %v, %v", fi, err)
	}
	for _, dir := range []string{outside, temp} {
		if list, _ := os.ReadDir(dir); len(list) > 1 || (dir == temp && len(list) > 0) {
			t.Errorf("%s holds %v", dir, list)
		}
	}
	f, err := sftp.NewClient(c)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Symlink(secret, "/tmp/by-sftp"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{secret, "/tmp/by-sftp", "../../../../../../.." + secret} {
		if _, err := f.Open(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("sftp open %s: %v, want no such file", name, err)
		}
	}
}

func TestASetuidBitNeverReachesTheDisk(t *testing.T) {
	l := newLab(t, Options{})
	if r := l.try([]string{"pct", "push", "105", "/etc/hosts", "/root/x", "--perms", "6755"},
		""); r.exit != 0 ||
		r.stderr != "" {
		t.Fatalf("%+v", r)
	}
	if r := l.try([]string{"pct", "exec", "105", "--", "stat", "-c", "%a %A", "/root/x"},
		""); r.stdout != "6755 -rwsr-sr-x\n" {
		t.Errorf("inside: %+v", r)
	}
	fi, err := os.Stat(filepath.Join(l.dir, "ct", "105", "root", "x"))
	if err != nil || fi.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		t.Errorf("on the disk: %v, %v", fi.Mode(), err)
	}
}

func TestKeysAndStateAreForTheirOwnerOnly(t *testing.T) {
	l := startLab(t, Options{})
	for name, want := range map[string]os.FileMode{"id_ed25519": 0o600,
		"ssh_host_ed25519_key.pve1": 0o600, "state.json": 0o600} {
		if fi, err := os.Stat(filepath.Join(l.dir, name)); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, fi.Mode(), err, want)
		}
	}
}

func TestInstalledWrappersServeTheMachinesOwnTree(t *testing.T) {
	dir := t.TempDir()
	var out, errw bytes.Buffer
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "up"), []byte("body"), 0o640); err != nil {
		t.Fatal(err)
	}
	run := func(argv ...string) int {
		out.Reset()
		errw.Reset()
		code, err := RunOnce(
			t.Context(),
			Options{State: dir, NodeRoot: root},
			"pve1",
			argv,
			nil,
			strings.NewReader(""),
			&out,
			&errw,
		)
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
	if code := run("pct", "push", "105", "/up", "/root/up"); code != 0 || errw.Len() > 0 {
		t.Fatalf("push: %d %s", code, &errw)
	}
	if code := run("pct", "exec", "105", "--", "cat", "/root/up"); code != 0 ||
		out.String() != "body" {
		t.Errorf("exec: %d %q %s", code, &out, &errw)
	}
	if code := run("pct", "pull", "105", "/root/up", "/down", "--perms", "600"); code != 0 ||
		errw.Len() > 0 {
		t.Errorf("pull: %d %s", code, &errw)
	}
	if fi, err := os.Stat(filepath.Join(root, "down")); err != nil || fi.Size() != 4 ||
		fi.Mode().Perm() != 0o600 {
		t.Errorf("pulled: %v, %v", fi, err)
	}
	if code := run("pct", "stop", "105"); code != 0 {
		t.Errorf("stop: %d", code)
	}
	if code := run("pct", "status", "105"); code != 0 || out.String() != "status: stopped\n" {
		t.Errorf("the next process does not see it: %d %q", code, &out)
	}
	bin := t.TempDir()
	if err := Install(t.Context(), Options{State: dir, NodeRoot: "/"}, "pve1", bin); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pct", "qm", "pvesh", "pvesm", "pvecm", "pvenode"} {
		b, err := os.ReadFile(filepath.Join(bin, name))
		if err != nil ||
			!strings.Contains(
				string(b),
				"run --state '"+dir+"' --node 'pve1' --root '/' -- "+name+` "$@"`,
			) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

func TestAPathReachesTheOtherNodesShellUnquoted(t *testing.T) {
	l := newLab(t, Options{})
	r := l.try(
		[]string{
			"pvesh",
			"get",
			"/nodes/pve2/lxc/110;touch pwned;:/config",
			"--output-format",
			"json",
		},
		"",
	)
	if _, err := l.NodeFile("pve2", "/root/pwned"); err != nil {
		t.Errorf("the trap is gone: %+v, %v", r, err)
	}
	r = l.try([]string{"pvesh", "get", "/nodes/gateway/lxc", "--output-format", "json"}, "")
	if e := l.Effects(); r.exit != 0 || e[len(e)-1].Kind != "egress" ||
		e[len(e)-1].Target != "gateway" {
		t.Errorf("ssh to a name outside the cluster: %+v, effects %+v", r, e)
	}
}
