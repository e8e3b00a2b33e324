package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/test/needs"
)

// The commands in a new plugin's README build, test and lock it.
func TestNewPluginsOfEachLanguageWork(t *testing.T) {
	for lang, compilers := range map[string][]string{"c": {"clang"}, "rust": {"rustc", "wasm-ld"},
		"assemblyscript": {"npm"}} {
		t.Run(lang, func(t *testing.T) {
			t.Parallel()
			for _, c := range compilers {
				needs.Program(t, c)
			}
			dir := filepath.Join(t.TempDir(), "backup-age")
			if out, err := exec.Command(bin, "plugin", "new", dir, "--lang", lang).
				CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			fence := regexp.MustCompile("(?s)```sh\n(.*?)```").FindSubmatch(
				read(t, filepath.Join(dir, "README.md")))
			if fence == nil {
				t.Fatal("its README has no commands")
			}
			cmd := exec.Command("bash", "-ec", string(fence[1]))
			cmd.Dir = dir
			// Debian's rustc has the target; one of rustup beside it may not
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(bin)+":/usr/bin:"+
				os.Getenv("PATH"), "npm_config_prefer_offline=true")
			out, err := cmd.CombinedOutput()
			for _, want := range []string{`{"node":"pve1","kernel":"6.8.12-4-pve"}`,
				"targets nodes", "plugins.lock written (1 plugins)"} {
				if err != nil || !strings.Contains(string(out), want) {
					t.Fatalf("%v, want %q: %s", err, want, out)
				}
			}
			plain, err := exec.Command(bin, "plugin", "run", filepath.Join(dir,
				"build/backup-age.wasm"), "backup_age_kernel", `{"node":"pve1"}`).CombinedOutput()
			if err == nil || !strings.Contains(string(plain), "no_answer") {
				t.Errorf("without answers: %v %s", err, plain)
			}
		})
	}
}

func TestPluginNewSaysWhichLanguages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"--lang", "cobol"}, "--lang cobol: want assemblyscript, c, go, rust"},
		{[]string{"--lang", "c", "--module", "a.b/c"}, "--sdk and --module are for Go, not for c"},
	} {
		out, err := exec.Command(bin, append([]string{"plugin", "new", dir}, x.args...)...).
			CombinedOutput()
		if _, is := os.Stat(dir); err == nil || is == nil || !strings.Contains(string(out),
			x.want) {
			t.Errorf("%q: %v %s", x.args, err, out)
		}
	}
}
