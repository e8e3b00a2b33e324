package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
)

// installed runs init for two nodes that no network has, and returns the home and the directory.
func installed(t *testing.T, nodes ...string) (home, dir string) {
	t.Helper()
	home = t.TempDir()
	var args []string
	for _, n := range nodes {
		args = append(args, "--node", n, "--host-key", "SHA256:"+strings.Repeat("A", 43))
	}
	if out, err := initialize(t, home, "", args...); err != nil {
		t.Fatalf("init: %v\n%s", err, out)
	}
	return home, filepath.Join(home, ".config/caponier")
}

// in runs a command in a home, with these words on its input.
func in(home, stdin string, args ...string) (string, error) {
	cmd := exec.Command(bin, args...)
	cmd.Env = []string{"HOME=" + home, "PATH=/usr/bin:/bin:/usr/sbin:/sbin",
		"CAPONIER_SANDBOX_CACHE_DIR=" + filepath.Join(filepath.Dir(bin), "cache")}
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestUninstallRemovesWhatInitWrote(t *testing.T) {
	home, dir := installed(t, "pve1=192.0.2.1", "pve2=192.0.2.2:2222")
	out, err := in(home, "no\n", "uninstall")
	if err != nil || !strings.Contains(out, "nothing was removed") ||
		strings.Count(out, "| ssh -p ") != 2 || !strings.Contains(out, "-p 2222 root@192.0.2.2") {
		t.Fatalf("an answer that is not yes: %v\n%s", err, out)
	}
	if len(snapshot(t, dir)) != 5 {
		t.Fatalf("left %v", snapshot(t, dir))
	}
	if out, err = in(home, "", "uninstall", "--json"); err != nil || len(snapshot(t, dir)) != 5 {
		t.Fatalf("--json without --yes: %v\n%s", err, out)
	}
	var all struct {
		Done  bool
		Items []struct {
			Path, Kind string
			Goes       bool
		}
		Nodes []struct{ Node, Line string }
	}
	must(t, json.Unmarshal([]byte(out), &all))
	if all.Done || len(all.Items) != 4 || len(all.Nodes) != 2 || all.Nodes[1].Node != "pve2" {
		t.Errorf("%+v", all)
	}
	if out, err = in(home, "", "uninstall", "--yes"); err != nil || !strings.Contains(out, "done") {
		t.Fatalf("%v\n%s", err, out)
	}
	if left, _ := os.ReadDir(filepath.Join(home, ".config")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	out, err = in(home, "", "uninstall", "--yes")
	if err == nil || !strings.Contains(out, "no installation of caponier init") {
		t.Errorf("a second run: %v\n%s", err, out)
	}
}

// What a person wrote goes only when it is named, and a link never.
func TestUninstallKeepsFilesThatNobodyNamed(t *testing.T) {
	home, dir := installed(t, "pve1=192.0.2.1")
	config, mine := filepath.Join(dir, "config.toml"), filepath.Join(dir, "site/mine.rego")
	must(t, os.WriteFile(config, append(read(t, config), "# mine\n"...), 0o600))
	must(t, os.WriteFile(mine, []byte("package mine"), 0o600))
	elsewhere := filepath.Join(home, "elsewhere")
	must(t, os.WriteFile(elsewhere, []byte("theirs"), 0o600))
	link := filepath.Join(dir, "secrets/link")
	must(t, os.Symlink(elsewhere, link))
	must(t, os.MkdirAll(filepath.Join(dir, "state/journal"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "state/journal/1"), []byte("evidence"), 0o600))
	must(t, os.MkdirAll(filepath.Join(dir, "state/cache"), 0o700))
	must(t, os.Symlink(home, filepath.Join(dir, "state/blobs")))
	before := snapshot(t, dir)
	for path, want := range map[string]string{link: "is a link", filepath.Dir(link): "is a link",
		elsewhere: "nothing that uninstall lists", dir: "is a link", "/": "is a link",
		filepath.Join(dir, "state/blobs"): "is a link"} {
		out, err := in(home, "", "uninstall", "--yes", "--also", path)
		if err == nil || !strings.Contains(out, want) || len(snapshot(t, dir)) != len(before) {
			t.Errorf("--also %s: %v\n%s", path, err, out)
		}
	}
	if out, err := in(home, "", "uninstall", "--yes"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	after := snapshot(t, dir)
	for _, name := range []string{"config.toml", "site/mine.rego", "state/journal/1"} {
		if after[name] != before[name] {
			t.Errorf("%s is gone", name)
		}
	}
	for _, name := range []string{"secrets/id_ed25519", "site/data.yaml", "state/cache"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
	// the second time, with names, until only the links are left
	out, err := in(home, "", "uninstall", "--yes", "--also", config, "--also", filepath.Dir(mine),
		"--also", filepath.Join(dir, "state/journal"))
	after = snapshot(t, dir)
	if err != nil || !strings.Contains(out, "node pve1: its public key") || len(after) != 1 ||
		after["installed.json"] == "" || string(read(t, link)) != "theirs" {
		t.Errorf("%v, left %v\n%s", err, after, out)
	}
	must(t, os.Remove(link))
	must(t, os.Remove(filepath.Join(dir, "state/blobs")))
	if out, err := in(home, "", "uninstall", "--yes"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory is left")
	}
	must(t, os.MkdirAll(dir, 0o700))
	must(t, os.Symlink(elsewhere, filepath.Join(dir, "installed.json")))
	if out, err := in(home, "", "uninstall", "--yes"); err == nil ||
		!strings.Contains(out, "is no regular file") {
		t.Errorf("a link for a record: %v\n%s", err, out)
	}
}

// A node leaves only when it takes the key no more: behind a real OpenSSH.
func TestNodeRemoveWaitsUntilTheKeyIsGone(t *testing.T) {
	sshd := sshtest.StartOpenSSH(t)
	home := t.TempDir()
	out, err := initialize(t, home, "", "--node", "pve1="+sshd.Addr, "--host-key", sshd.Pin(),
		"--node", "pve2=127.0.0.1:1", "--host-key", sshd.Pin(), "--accept-risks")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	config := filepath.Join(home, ".config/caponier/config.toml")
	must(t, os.WriteFile(config, []byte(strings.ReplaceAll(string(read(t, config)),
		`user = "root"`, `user = "`+sshd.User+`"`)+"\n# mine\n[log]\nlevel = \"warn\"\n"), 0o600))
	keys := filepath.Join(sshd.Dir, "authorized_keys")
	must(t, os.WriteFile(keys, read(t, filepath.Join(filepath.Dir(config),
		"secrets/id_ed25519.pub")), 0o644))
	before := string(read(t, config))
	remove := func(want string, args ...string) string {
		t.Helper()
		out, err := in(home, "", append([]string{"--config", config, "node", "remove"}, args...)...)
		if (err == nil) != !strings.Contains(want, "nothing was changed") ||
			!strings.Contains(out, want[:strings.IndexByte(want+"|", '|')]) ||
			err != nil && (!strings.Contains(out, "nothing was changed") ||
				string(read(t, config)) != before) {
			t.Errorf("%q: %v\n%s\nwant %s", args, err, out, want)
		}
		return out
	}
	remove(`has no node "pve3", only pve1, pve2|nothing was changed`, "pve3", "--yes")
	remove("nothing was changed", "pve1")
	remove("pve1 still takes the key: run the line|nothing was changed", "pve1", "--yes")
	remove("pve2 cannot be asked|nothing was changed", "pve2", "--yes")
	// one of two that has no key: the other stays
	must(t, os.WriteFile(keys, nil, 0o644))
	remove("pve1 is no node", "pve1", "--yes")
	if left := string(read(t, config)); strings.Contains(left, "pve1") ||
		!strings.Contains(left, "pve2") {
		t.Errorf("config.toml is\n%s", left)
	}
	old, _ := filepath.Glob(config + ".before-*")
	must(t, os.Rename(old[0], config))
	must(t, os.WriteFile(keys, read(t, filepath.Join(filepath.Dir(config),
		"secrets/id_ed25519.pub")), 0o644))
	remove("pve2 is no node", "pve2", "--yes", "--away")
	before = string(read(t, config))
	if strings.Contains(before, "pve2") || !strings.Contains(before, "pve1") ||
		!strings.Contains(before, "\n# mine\n[log]\n") {
		t.Errorf("config.toml is\n%s", before)
	}
	if old, _ := filepath.Glob(config + ".before-*"); len(old) != 1 {
		t.Errorf("old texts: %v", old)
	}
	// a site that speaks of the node would not load
	data := filepath.Join(filepath.Dir(config), "site/data.yaml")
	site := string(read(t, data))
	must(t, os.WriteFile(keys, nil, 0o644))
	private := filepath.Join(filepath.Dir(config), "secrets/id_ed25519")
	key := read(t, private)
	must(t, os.WriteFile(private, []byte("no key"), 0o600))
	remove("pve1 cannot be asked|nothing was changed", "pve1", "--yes")
	must(t, os.WriteFile(private, key, 0o600))
	must(t, os.WriteFile(data, []byte(strings.Replace(site, "\nprotected:",
		"\nprotected:\n  nodes: [pve1]", 1)), 0o600))
	if string(read(t, data)) == site {
		t.Fatal("the site was not changed")
	}
	remove("the policy would not load without the node|nothing was changed", "pve1", "--yes")
	must(t, os.WriteFile(data, []byte(site), 0o600))
	linked := filepath.Join(filepath.Dir(config), "linked.toml")
	must(t, os.Symlink(config, linked))
	out, err = in(home, "", "--config", linked, "node", "remove", "pve1", "--yes")
	if err == nil || !strings.Contains(out, "is no regular file") {
		t.Errorf("a link: %v\n%s", err, out)
	}
	remove(`"removed":"pve1"`, "pve1", "--yes", "--json")
	out, err = in(home, "", "--config", config, "node", "remove", "pve1", "--yes")
	if err == nil || !strings.Contains(out, `has no node "pve1"`) {
		t.Errorf("a second run: %v\n%s", err, out)
	}
}

// A failure on this machine, or before the node, proves nothing about the key on the node.
func TestNodeRemoveAcceptsOnlyARefusal(t *testing.T) {
	sshd := sshtest.StartOpenSSH(t) // its authorized_keys hold another key
	host, port, _ := strings.Cut(sshd.Addr, ":")
	jump := func(key string) string {
		return fmt.Sprintf("jump = [{host = %q, port = %s, user = %q, identity_file = %q, "+
			"host_key = %q}]", host, port, sshd.User, key, sshd.Pin())
	}
	for claim, add := range map[string]string{
		"no agent":                 "agent = true",
		"no certificate":           `certificate_file = "missing"`,
		"a jump host that refuses": jump("secrets/id_ed25519"),
		"no key for a jump host":   jump("missing"),
	} {
		home := t.TempDir()
		out, err := initialize(t, home, "", "--node", "pve1="+sshd.Addr, "--host-key", sshd.Pin(),
			"--node", "pve2=127.0.0.1:1", "--host-key", sshd.Pin(), "--accept-risks")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		config := filepath.Join(home, ".config/caponier/config.toml")
		text := strings.Replace(strings.ReplaceAll(string(read(t, config)), `user = "root"`,
			`user = "`+sshd.User+`"`), "default = true", "default = true\n"+add, 1)
		must(t, os.WriteFile(config, []byte(text), 0o600))
		out, err = in(home, "", "node", "remove", "pve1", "--yes")
		if err == nil || !strings.Contains(out, "pve1 cannot be asked") ||
			string(read(t, config)) != text {
			t.Errorf("%s: %v\n%s", claim, err, out)
		}
	}
}

// The line is for one whole key, and a node without one hides no other's.
func TestUninstallAndNodeRemoveReadThePublicKey(t *testing.T) {
	for _, public := range []string{"", "ssh-ed25519", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA",
		"no"} {
		home, dir := installed(t, "pve1=192.0.2.1", "pve2=192.0.2.2")
		config, other := filepath.Join(dir, "config.toml"), filepath.Join(dir, "other")
		text := strings.Replace(string(read(t, config)), `identity_file = "secrets/id_ed25519"`,
			`identity_file = "other"`, 1)
		if public == "no" { // no file, but an agent
			text = strings.Replace(text, `identity_file = "other"`, "agent = true", 1)
		}
		text = strings.Replace(text, "accept_risks = false", "accept_risks = true", 1)
		must(t, os.WriteFile(config, []byte(text), 0o600))
		must(t, os.WriteFile(other+".pub", []byte(public+"\n"), 0o600))
		out, err := in(home, "no\n", "uninstall")
		if err != nil || strings.Count(out, "| ssh -p ") != 1 ||
			!strings.Contains(out, "root@192.0.2.2") || strings.Contains(out, "%!") ||
			!strings.Contains(out, "node pve1: its public key") {
			t.Errorf("%q: %v\n%s", public, err, out)
		}
		out, err = in(home, "", "node", "remove", "pve1", "--yes")
		if err == nil || !strings.Contains(out, "--away") || strings.Contains(out, "| ssh -p ") ||
			string(read(t, config)) != text {
			t.Errorf("%q: %v\n%s", public, err, out)
		}
		out, err = in(home, "", "node", "remove", "pve1", "--yes", "--away")
		if err != nil || strings.Contains(out, "| ssh -p ") ||
			strings.Contains(string(read(t, config)), "pve1") {
			t.Errorf("%q, away: %v\n%s", public, err, out)
		}
	}
}
