package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/test/needs"
)

// example is a folder of examples/plugins that is not in Go.
type example struct {
	compilers    []string
	module, tool string
	command      string   // the last one that the tool runs, in YAML
	says         string   // the tool, of the answers in its folder
	broken       []string // what the command could print and nobody can read
}

var examples = map[string]example{
	"load": {[]string{"clang", "wasm-ld"}, "load", "node_load", "[cat, /proc/loadavg]",
		`"processors":4,"percent_1m":2,"percent_5m":77,"percent_15m":2,"state":"busy"`,
		[]string{"", "0.1 0.2 0.3 1/2 3", "0.08 0.11", "-0.08 0.11 0.09 1", "a", "0.08 0.11 0.09",
			"0.08,0.11,0.09 1/2", "999999999999999.00 0.11 0.09 1/2"}},
	"thin-pools": {[]string{"rustc", "wasm-ld"}, "thin_pools", "thin_pools",
		"[lvs, --noheadings, --separator, ':', -o, 'vg_name,lv_name,lv_attr,data_percent," +
			"metadata_percent']",
		`"good":false,"pools":[{"pool":"pve/data","data_percent":81.25,"metadata_percent":4.1,` +
			`"full":true}`,
		[]string{"WARNING: no pools", "pve:data:twi-aotz--::", "pve:data:twi-aotz--:NaN:1",
			"pve:data:twi-aotz--:101:1", ":data:twi-aotz--:1:1", "pve:data:twi:1:1",
			"pve:data:twi-aotz--:80.1", "pve:data:twi-aotz--:1:1:1"}},
	"clock": {[]string{"npm"}, "clock", "node_clock", "[timedatectl, show]",
		`"good":true,"ntp":true,"synchronized":true,"timezone":"Etc/UTC"`,
		[]string{"", "NTP=yes", "NTP=yes\nNTPSynchronized=maybe\nTimezone=X",
			"NTP=yes\nNTPSynchronized=yes\nTimezone=",
			"NTP=yes\nNTPSynchronized=no\nNTPSynchronized=yes\nTimezone=X"}},
}

// bash runs a line in the folder of an example, and returns all that it printed.
func (e example) bash(t *testing.T, dir, line string) string {
	t.Helper()
	cmd := exec.Command("bash", "-ec", line)
	// Debian's rustc has the target; one of rustup beside it may not
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+filepath.Dir(bin)+":/usr/bin:"+
		os.Getenv("PATH"), "npm_config_prefer_offline=true")
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out)
}

// The examples in C, Rust and AssemblyScript are built, tried and locked by the commands of their
// READMEs. Unreadable output of a node is an error. It must not be reported as an idle node, an
// empty one, or a correct clock.
func TestExamplesInOtherLanguagesWork(t *testing.T) {
	for name, e := range examples {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range e.compilers {
				needs.Program(t, c)
			}
			dir, err := filepath.Abs("../examples/plugins/" + name)
			must(t, err)
			fence := regexp.MustCompile("(?s)```sh\n(.*?)```").FindSubmatch(
				read(t, filepath.Join(dir, "README.md")))
			if fence == nil {
				t.Fatal("its README has no commands")
			}
			out := e.bash(t, dir, string(fence[1]))
			locked := regexp.MustCompile(`plugins.lock (written|is current) \(1 plugins\)`)
			if !strings.Contains(out, e.says) || !locked.MatchString(out) {
				t.Fatalf("want %q: %s", e.says, out)
			}
			fails := map[string]string{"exit: 1, stderr: lost": "lost"}
			for _, printed := range e.broken {
				fails[fmt.Sprintf("stdout: %q", printed)] = "bad_output"
			}
			for answer, want := range fails {
				answers := filepath.Join(t.TempDir(), "answers.yaml")
				must(t, os.WriteFile(answers, []byte("commands:\n  - {argv: [nproc], stdout: "+
					"\"4\\n\"}\n  - {argv: "+e.command+", "+answer+"}\n"), 0o600))
				out := e.bash(t, dir, "caponier plugin run build/"+e.module+".wasm "+e.tool+
					" --answers "+answers)
				if !strings.Contains(out, want) || strings.Contains(out, `"node"`) {
					t.Errorf("%s: want %s, got %s", answer, want, out)
				}
			}
		})
	}
}
