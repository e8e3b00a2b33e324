package test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/test/needs"
)

const (
	forge    = "https://token.actions.githubusercontent.com"
	workflow = "https://github.com/acme/zfs/.github/workflows/release.yml@refs/tags/"
)

// keylessly writes FILE.sig beside each module, signed by a Sigstore instance whose trusted root is
// in the returned directory. It needs the programs that `make keyless` builds.
func keylessly(t *testing.T, subject string, files ...string) (root, program string) {
	t.Helper()
	var programs []string
	for _, name := range []string{"sigstorelab", "caponier-keyless"} {
		p, err := filepath.Abs("../build/" + name)
		must(t, err)
		if _, err := os.Stat(p); err != nil {
			needs.Skip(t, p+", which `make keyless` builds")
		}
		programs = append(programs, p)
	}
	dir := t.TempDir()
	out, err := exec.Command(programs[0], append([]string{dir, forge, subject},
		files...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "trusted_root.json"), programs[1]
}

// A certificate contains an identity, and the site decides whether that identity may sign.
func TestKeylessSignaturesOfASite(t *testing.T) {
	s := newSite(t, "../build/modules/steps.wasm")
	module := func(name string) string { return filepath.Join(s.dir, "plugins", name+".wasm") }
	root, program := keylessly(t, workflow+"v1.0.0", module("steps"), module("containers"))
	data := filepath.Join(s.dir, "site", "data.yaml")
	before, err := os.ReadFile(data)
	must(t, err)
	plain, err := os.ReadFile(s.config)
	must(t, err)
	trust := func(issuer, subject string) {
		t.Helper()
		must(t, os.WriteFile(data, fmt.Appendf(before[:len(before):len(before)], `
plugins:
  trust:
    acme:
      identities: [{issuer: %q, subject: %q}]
      plugins: ["*"]
      imports: [ssh_exec, ssh_script, stage, sftp_stat, sftp_list, sftp_read, sftp_write,
        sftp_put, sftp_get, sftp_remove, list_commands, ask, blob_write, blob_read, http_request]
`, issuer, subject), 0o644))
	}
	with := func(program, root string) {
		t.Helper()
		must(t, os.WriteFile(s.config, fmt.Appendf(plain[:len(plain):len(plain)],
			"\n[keyless]\nprogram = %q\ntrusted_root = %q\n", program, root), 0o600))
	}
	want := func(what, text string, code int, args ...string) {
		t.Helper()
		cmd := s.command(args...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != code || !strings.Contains(string(out), text) {
			t.Errorf("%s: %v, want %d and %q:\n%s", what, err, code, text, out)
		}
	}
	lock := []string{"plugin", "lock", "steps"}
	call := []string{"call", "steps_run", `{"n":1}`}
	trust(forge, workflow+"*")
	want("nothing that verifies", "set program and trusted_root in [keyless]", 3, lock...)
	with(program, filepath.Join(s.dir, "none.json"))
	want("no trusted root", "reading the trusted root", 3, lock...)
	other, _ := keylessly(t, workflow+"v1.0.0")
	with(program, other)
	want("another instance", "does not trust", 3, lock...)
	with(program, root)
	trust(forge, strings.Replace(workflow, "acme", "evil", 1)+"*")
	want("another's identity", "has no signer with the identity "+workflow, 3, lock...)
	trust("https://accounts.example.org", workflow+"*")
	want("of another issuer", "plugins.trust has no signer", 3, lock...)
	trust(forge, "https://github.com/*")
	want("everybody at one forge", "is not one owner", 2, lock...)
	trust(forge, workflow+"*")
	want("trusted", "written", 0, "plugin", "lock")
	if locked := s.read(t, "plugins.lock"); strings.Count(locked, `"by": "acme"`) != 2 {
		t.Errorf("the lock does not say who signed:\n%s", locked[:2000])
	}
	want("served", "", 0, call...)
	want("who signed", "is signed by acme", 0, "plugin", "verify", module("steps"))
	must(t, os.Rename(module("steps")+".sig", module("steps")+".mine"))
	sig, err := os.ReadFile(module("containers") + ".sig")
	must(t, err)
	must(t, os.WriteFile(module("steps")+".sig", sig, 0o644))
	want("of another module", "does not match", 1, call...)
	must(t, os.Rename(module("steps")+".mine", module("steps")+".sig"))
	trust(forge, workflow+"v2.0.0")
	want("no longer trusted", "does not trust", 1, call...)
	trust(forge, workflow+"*")
	with(filepath.Join(s.dir, "none"), root)
	want("without the program", "the program that verifies keyless signatures", 1, call...)
}

func TestVerifyNamesTheIdentityOfACertificate(t *testing.T) {
	module := filepath.Join(t.TempDir(), "steps.wasm")
	data, err := os.ReadFile("../build/modules/steps.wasm")
	must(t, err)
	must(t, os.WriteFile(module, data, 0o644))
	root, program := keylessly(t, "ann@example.org", module)
	for _, c := range []struct {
		what, subject, issuer, want string
		code                        int
	}{
		{"hers", "ann@example.org", forge, "is signed by ann@example.org", 0},
		{"another's", "bob@example.org", forge, "is signed by ann@example.org of " + forge, 3},
		{"of another issuer", "ann@example.org", "https://x.example", "of " + forge, 3},
		{"of any issuer", "ann@example.org", "", "certificate-oidc-issuer", 2},
	} {
		args := []string{"plugin", "verify", "--keyless", program, "--trusted-root", root,
			"--certificate-identity", c.subject}
		if c.issuer != "" {
			args = append(args, "--certificate-oidc-issuer", c.issuer)
		}
		out, say, code := try(t, append(args, module)...)
		if code != c.code || !strings.Contains(out+say, c.want) {
			t.Errorf("%s: %d %s%s, want %d and %q", c.what, code, out, say, c.code, c.want)
		}
	}
}

// The program reads everything from its standard input. It opens no connection, opens only files of
// its runtime, and starts no process.
func TestTheVerifierGoesNowhere(t *testing.T) {
	strace := needs.Program(t, "strace")
	module := filepath.Join(t.TempDir(), "m.wasm")
	must(t, os.WriteFile(module, []byte("m"), 0o644))
	file, program := keylessly(t, "ann@example.org", module)
	root, err := os.ReadFile(file)
	must(t, err)
	bundle, err := os.ReadFile(module + ".sig")
	must(t, err)
	question, err := json.Marshal(map[string]string{"trusted_root": string(root),
		"bundle": string(bundle), "digest": fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("m")))})
	must(t, err)
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command(strace, "-f", "-o", trace, "-e", "trace=%network,%file,%process", program)
	cmd.Stdin, cmd.Env = strings.NewReader(string(question)), []string{}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"subject":"ann@example.org"`) {
		t.Fatalf("%v: %s", err, out)
	}
	calls, err := os.ReadFile(trace)
	must(t, err)
	for line := range strings.Lines(string(calls)) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
		line = strings.TrimSpace(line)
		name, _, _ := strings.Cut(line, "(")
		runtime := strings.Contains(line, `"/sys/kernel/mm/transparent_hugepage/`) ||
			strings.Contains(line, program) || strings.Contains(line, `"/proc/`) ||
			strings.Contains(line, `"/sys/fs/cgroup`)
		switch {
		case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"),
			strings.HasPrefix(line, "<..."), name == "clone", name == "clone3",
			name == "exit_group", name == "exit", name == "tgkill", runtime:
		default:
			t.Errorf("%s", line)
		}
	}
}
