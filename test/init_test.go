package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
)

// initialize runs init in a separate home directory, with these words on its input.
func initialize(t *testing.T, home, stdin string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(bin, append([]string{"init"}, args...)...)
	cmd.Env = []string{"HOME=" + home, "PATH=/usr/bin:/bin:/usr/sbin:/sbin",
		"CAPONIER_SANDBOX_CACHE_DIR=" + filepath.Join(filepath.Dir(bin), "cache")}
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// From nothing to a true answer of a node behind a real OpenSSH: init, the line that it prints (run
// on the node), check, call.
func TestInitLeadsToAFirstAnswer(t *testing.T) {
	home := t.TempDir()
	tools := filepath.Join(home, "bin")
	if out, err := exec.Command(filepath.Join(filepath.Dir(bin), "pvelab"), "install", "--state",
		filepath.Join(home, "lab"), "--root", "/", "--effects", filepath.Join(home, "effects"),
		tools).
		CombinedOutput(); err != nil {
		t.Fatalf("pvelab install: %v\n%s", err, out)
	}
	sshd := sshtest.StartOpenSSH(t, "SetEnv PATH="+tools+":/usr/bin:/bin")
	addr := "pve1=" + sshd.Addr
	// the questions are asked when no flag answers them
	out, err := initialize(t, home, addr+"\n\nno\n")
	if err == nil || !strings.Contains(out, "not confirmed, and nothing was written") ||
		!strings.Contains(out, "--host-key "+sshd.Pin()) {
		t.Fatalf("a key that nobody confirmed: %v\n%s", err, out)
	}
	if left, _ := os.ReadDir(filepath.Join(home, ".config")); len(left) > 0 {
		t.Fatalf("left %v", left)
	}
	out, err = initialize(t, home, addr+"\n\nyes\nyes\n", "--client", "cursor")
	config := filepath.Join(home, ".config/caponier/config.toml")
	if err != nil || !strings.Contains(out, config+" is written") ||
		!strings.Contains(out, "0 failed") || !strings.Contains(out, `"mcpServers"`) {
		t.Fatalf("init: %v\n%s", err, out)
	}
	before := snapshot(t, filepath.Dir(config))

	// what the line does on the node, for the account and the programs of this sshd; the line
	// itself runs in test/packaging/cleanroot.sh
	public, err := os.ReadFile(filepath.Join(filepath.Dir(config), "secrets/id_ed25519.pub"))
	must(t, err)
	if !strings.Contains(out, "tar -cC '") || !strings.Contains(out, strings.TrimSuffix(
		strings.TrimSpace(string(public)), " caponier")) {
		t.Fatalf("no line for the node:\n%s", out)
	}
	must(t, os.WriteFile(filepath.Join(sshd.Dir, "authorized_keys"), public, 0o644))
	user := strings.ReplaceAll(string(read(t, config)), `user = "root"`, `user = "`+sshd.User+`"`)
	must(t, os.WriteFile(config, []byte(user), 0o600))
	before["config.toml"] = user

	out, err = initialize(t, home, "", "--node", addr, "--node", "pve9=192.0.2.9")
	if !strings.Contains(out, "stays as it is") || !strings.Contains(out, "pve9 is not in it") ||
		strings.Contains(out, "pve1 is not in it") ||
		!strings.Contains(out, "ok    pve1: host-key") {
		t.Errorf("a second init: %v\n%s", err, out)
	}
	after := snapshot(t, filepath.Dir(config))
	for name, text := range before {
		if after[name] != text {
			t.Errorf("a second init changed %s", name)
		}
	}
	for tool, want := range map[string]string{"proxmox_list_containers": "web01",
		"proxmox_stop_container": "refused"} {
		cmd := exec.Command(bin, "--config", config, "call", tool, map[bool]string{true: `{}`,
			false: `{"vmid":101}`}[want == "web01"])
		cmd.Env = []string{"HOME=" + home, "PATH=/usr/bin:/bin",
			"CAPONIER_SANDBOX_CACHE_DIR=" + filepath.Join(filepath.Dir(bin), "cache")}
		out, err := cmd.CombinedOutput()
		if (err == nil) != (want == "web01") || want == "web01" &&
			!strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", tool, err, out)
		}
	}
}

func TestAFailedInitLeavesNothing(t *testing.T) {
	pin := "SHA256:" + strings.Repeat("A", 43)
	for _, c := range []struct {
		claim, want string
		args        []string
	}{
		{"a node that refuses", "node pve1: scanning 127.0.0.1:1: ",
			[]string{"--node", "pve1=127.0.0.1:1"}},
		{"no network", "nothing was written; --host-key",
			[]string{"--node", "pve1=no-such-host.invalid"}},
		{"no node", "no node: give --node", nil},
		{"not a node", "want NAME=HOST", []string{"--node", "192.0.2.1"}},
		{"a node twice", "two nodes of the name",
			[]string{"--node", "a=192.0.2.1", "--node", "a=192.0.2.2"}},
		{"a pin too few", "1 --host-key for 2 nodes",
			[]string{"--node", "a=192.0.2.1", "--node", "b=192.0.2.2", "--host-key", pin}},
		{"a way that is none", "want gate or sudo", []string{"--login", "rsh"}},
		{"an account that is none", "unknown user",
			[]string{"--node", "a=192.0.2.1", "--host-key", pin, "--for", "no-such-account"}},
	} {
		home := t.TempDir()
		out, err := initialize(t, home, "", c.args...)
		if left, _ := os.ReadDir(home); err == nil || !strings.Contains(out, c.want) ||
			len(left) > 0 {
			t.Errorf("%s: %v, left %v\n%s; want %q", c.claim, err, left, out, c.want)
		}
	}
	// without a network a pin is enough, and a file of the user is never overwritten
	home := t.TempDir()
	out, err := initialize(t, home, "", "--node", "pve1=no-such-host.invalid", "--host-key", pin,
		"--login", "sudo")
	if err != nil || !strings.Contains(out, "useradd") || !strings.Contains(out, "FAIL  risks") {
		t.Errorf("no network, with a pin: %v\n%s", err, out)
	}
	home = t.TempDir()
	mine := filepath.Join(home, ".config/caponier/site/data.yaml")
	must(t, os.MkdirAll(filepath.Dir(mine), 0o755))
	must(t, os.WriteFile(mine, []byte("mine"), 0o644))
	out, err = initialize(t, home, "", "--node", "pve1=192.0.2.1", "--host-key", pin)
	if err == nil || !strings.Contains(out, "nothing is overwritten") ||
		string(read(t, mine)) != "mine" {
		t.Errorf("a site that is there: %v\n%s", err, out)
	}
}

func TestClientAddWritesTheClientsFile(t *testing.T) {
	home := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(home, ".cursor"), 0o755))
	if out, err := initialize(t, home, "", "--node", "pve1=192.0.2.1", "--host-key",
		"SHA256:"+strings.Repeat("A", 43)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"is new", "nothing was changed"} {
		cmd := exec.Command(bin, "client", "add", "cursor")
		cmd.Env = []string{"HOME=" + home}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("client add: %v\n%s; want %q", err, out, want)
		}
	}
	c := configured(t, filepath.Join(home, ".cursor/mcp.json"))
	if c.Command != bin || len(c.Args) != 3 ||
		c.Args[1] != filepath.Join(home, ".config/caponier/config.toml") {
		t.Errorf("%+v", c)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	return data
}

// snapshot returns the files below a directory.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			rel, _ := filepath.Rel(dir, path)
			all[rel] = string(read(t, path))
		}
		return err
	}))
	return all
}
