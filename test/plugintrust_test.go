package test

import (
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/test/needs"
)

// keyPair makes a key with ssh-keygen, and returns its file and the public key.
func keyPair(t *testing.T) (file, public string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "key")
	must(t, exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f",
		file).Run())
	data, err := os.ReadFile(file + ".pub")
	must(t, err)
	return file, strings.TrimSpace(string(data))
}

// sign leaves FILE.sig beside a module.
func sign(t *testing.T, key, file string) {
	t.Helper()
	if err := os.Remove(file + ".sig"); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	out, err := exec.Command("ssh-keygen", "-q", "-Y", "sign", "-n", "caponier-plugin", "-f", key,
		file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// Pulled is not trusted, trusted is not locked: each step is refused for its own reason.
func TestPluginTrustOfASite(t *testing.T) {
	s := newSite(t, "../build/modules/steps.wasm")
	key, public := keyPair(t)
	other, _ := keyPair(t)
	data := filepath.Join(s.dir, "site", "data.yaml")
	before, err := os.ReadFile(data)
	must(t, err)
	trust := func(options, plugins, imports string) {
		t.Helper()
		must(t, os.WriteFile(data, append(before[:len(before):len(before)],
			"\nplugins:\n  trust:\n    acme:\n      keys: ['"+options+public+"']\n      plugins: ["+
				plugins+"]\n      imports: ["+imports+"]\n"...), 0o644))
	}
	module := func(name string) string { return filepath.Join(s.dir, "plugins", name+".wasm") }
	want := func(what, text string, code int, args ...string) {
		t.Helper()
		cmd := s.command(args...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != code || !strings.Contains(string(out), text) {
			t.Errorf("%s: %v, want %d and %q:\n%s", what, err, code, text, out)
		}
	}
	all := "ssh_exec, ssh_script, stage, sftp_stat, sftp_list, sftp_read, sftp_write, sftp_put, " +
		"sftp_get, sftp_remove, list_commands, ask, blob_write, blob_read, http_request"
	lock := []string{"plugin", "lock", "steps"}
	trust("", "steps, containers", all)
	want("no signature", "there is no steps.wasm.sig beside it", 3, lock...)
	want("served without", "the site does not trust the plugin steps", 1, "call", "steps_run",
		`{"n":1}`)
	sign(t, other, module("steps"))
	want("another key", "signed with another key", 3, lock...)
	sign(t, key, module("containers"))
	sig, err := os.ReadFile(module("containers") + ".sig")
	must(t, err)
	must(t, os.WriteFile(module("steps")+".sig", sig, 0o644))
	want("of another module", "not of this module", 3, lock...)
	sign(t, key, module("steps"))
	trust("", "acme-*", all)
	want("another name", `acme may not sign a plugin "steps"`, 3, lock...)
	trust("", "'*'", "ask")
	want("imports", "acme may not sign a plugin that imports", 3, lock...)
	trust(`valid-before="20200101Z" `, "'*'", all)
	want("expired", "has expired", 3, lock...)
	trust("cert-authority ", "'*'", all)
	want("a bad key", "plugins/trust/acme/keys/0", 3, lock...)
	trust("", "'st*', containers", all)
	want("served and not locked so", "which the lock does not say", 1, "call", "steps_run",
		`{"n":1}`)
	want("trusted", "written", 0, "plugin", "lock")
	locked := s.read(t, "plugins.lock")
	if strings.Count(locked, `"by": "acme"`) != 2 {
		t.Errorf("the lock does not say who signed:\n%s", locked[:2000])
	}
	want("who signed", "is signed by acme", 0, "plugin", "verify", module("steps"))
	want("served", "", 0, "call", "steps_run", `{"n":1}`)
	must(t, os.Rename(module("steps")+".sig", module("steps")+".old"))
	must(t, os.Symlink("/etc/hostname", module("steps")+".sig"))
	want("a link to elsewhere", "reading the signature", 1, "call", "steps_run", `{"n":1}`)
	must(t, os.Rename(module("steps")+".old", module("steps")+".sig"))
	trust("", "containers", all)
	want("no longer trusted", "does not trust", 1, "call", "steps_run", `{"n":1}`)
}

// registryOnLoopback starts Debian's registry, and returns its address.
func registryOnLoopback(t *testing.T) string {
	t.Helper()
	program := needs.Program(t, "docker-registry")
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	host := l.Addr().String()
	l.Close()
	file := filepath.Join(dir, "config.yml")
	must(t, os.WriteFile(file, []byte("version: 0.1\nlog: {level: error}\nstorage: {filesystem: "+
		"{rootdirectory: "+dir+"/data}}\nhttp: {addr: \""+host+"\"}\n"), 0o600))
	server := exec.Command(program, "serve", file)
	must(t, server.Start())
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", host); err == nil {
			c.Close()
			return host
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// A module goes through a registry by command; a tag, and an answer that is none, are refused, and
// leave no file.
func TestPluginPushAndPullByCommand(t *testing.T) {
	dir, host := t.TempDir(), registryOnLoopback(t)
	module, err := filepath.Abs("../build/modules/steps.wasm")
	must(t, err)
	bytes, err := os.ReadFile(module)
	must(t, err)
	mine := filepath.Join(dir, "steps.wasm")
	must(t, os.WriteFile(mine, bytes, 0o644))
	key, public := keyPair(t)
	sign(t, key, mine)
	allowed := filepath.Join(dir, "allowed")
	must(t, os.WriteFile(allowed, []byte("ann@example.org "+public+"\n"), 0o600))
	tag := "oci://" + host + "/acme/steps:v1"
	out, say, code := try(t, "plugin", "push", "--plain-http", "--signature", mine+".sig",
		"--licence", "MIT", mine, tag)
	ref := strings.TrimSpace(out)
	if code != 0 || !strings.Contains(ref, "@sha256:") {
		t.Fatalf("push: %d %s %s", code, out, say)
	}
	taken := filepath.Join(dir, "taken.wasm")
	keep := filepath.Join(dir, "precious")
	must(t, os.WriteFile(keep, []byte("mine"), 0o600))
	must(t, os.Symlink(keep, taken))
	_, say, code = try(t, "plugin", "pull", "--plain-http", "--out", taken, tag)
	if code != 1 || !strings.Contains(say, "use "+ref) {
		t.Errorf("a tag: %d %s", code, say)
	}
	if _, say, code = try(t, "plugin", "pull", "--plain-http", "--out", taken, ref); code != 0 {
		t.Errorf("pull: %d %s", code, say)
	}
	if got, err := os.ReadFile(taken); err != nil || string(got) != string(bytes) {
		t.Errorf("another module was taken: %v", err)
	}
	if got, err := os.ReadFile(keep); err != nil || string(got) != "mine" {
		t.Errorf("the link was followed: %q %v", got, err)
	}
	for _, what := range []string{taken, ref} {
		out, say, code = try(t, "plugin", "verify", "--plain-http", "--allowed-signers", allowed,
			what)
		if code != 0 || !strings.Contains(out, "is signed by ann@example.org") {
			t.Errorf("verify %s: %d %s%s", what, code, out, say)
		}
	}
	// the author chooses the name, and not what it replaces
	must(t, os.WriteFile(mine, []byte("another's"), 0o644))
	cmd := exec.CommandContext(t.Context(), bin, "plugin", "pull", "--plain-http", ref)
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir}
	refused, err := cmd.CombinedOutput()
	if got, _ := os.ReadFile(mine); err == nil || string(got) != "another's" ||
		!strings.Contains(string(refused), "steps.wasm is there already") {
		t.Errorf("a file of that name: %s %v %q", refused, err, got)
	}
	liar := httptest.NewServer(nil)
	defer liar.Close()
	no := filepath.Join(dir, "no.wasm")
	_, say, code = try(t, "plugin", "pull", "--plain-http", "--out", no,
		strings.Replace(ref, host, strings.TrimPrefix(liar.URL, "http://"), 1))
	if _, err := os.Stat(no); code != 1 || !os.IsNotExist(err) {
		t.Errorf("a registry that has nothing: %d %s, %v", code, say, err)
	}
}
