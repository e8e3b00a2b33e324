package repo_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/policy/repo"
)

// opa returns the plain program, of the version that decides in the host.
func opa(t *testing.T) string {
	t.Helper()
	tool := []string{"tool", "-modfile=../../../test/tools/go.mod"}
	out, err := exec.Command("go", append(tool, "opa", "version")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	out, err = exec.Command("go", append(tool, "-n", "opa")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func export(t *testing.T, dir, version string) repo.Report {
	t.Helper()
	rep, err := repo.Write(repo.Options{Dir: dir, Site: lab, Version: version,
		Inventory: inventory(t)})
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tree is every file of a folder with its bytes.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var data []byte
			data, err = os.ReadFile(p)
			all[strings.TrimPrefix(p, dir+"/")] = string(data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

const asks = `package caponier.site.call_test

import data.caponier.testing

asked(vmid) := testing.decide(testing.call("proxmox_container_status", {"vmid": vmid}, "demo"))

test_103_is_protected if asked(103).failed == ["protected"]

test_others_are_not if asked(104).allow
`

// Plain opa checks, formats and tests an export, outside of this repository, and a mistake of each
// kind ends the script of the CI with words that name it.
func TestPlainOPAWorksInAnExport(t *testing.T) {
	dir, program := filepath.Join(t.TempDir(), "policy"), opa(t)
	export(t, dir, "1.0.0")
	run := func() (string, error) {
		cmd := exec.Command("sh", filepath.Join(dir, "ci.sh"))
		cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin", "OPA=" + program, "HOME=" + dir}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	write(t, dir+"/site/data_test.rego", asks)
	out, err := run()
	if err != nil || !strings.Contains(out, "PASS: 2/2") {
		t.Fatalf("%v\n%s", err, out)
	}
	data := tree(t, dir)["site/data.yaml"]
	for _, c := range []struct{ file, text, want string }{
		{"data.yaml", strings.Replace(data, `"103":`, `"113":`, 1), "FAIL"},
		{"data.yaml", data + "\nprotect: {}\n", "Additional property protect"},
		{"data.yaml", strings.Replace(data, "roles: [operator]", "roles: [operators]", 1),
			"there is no role"},
		{"a.rego", "package caponier.site.call\n\n" +
			"deny contains {\"id\": \"a\", \"msg\": \"b\"} if " +
			"time.now_ns() > 1\n", "time.now_ns"},
		{"a.rego", "package caponier.site.call\ndeny   contains 1 if false", "not formatted"},
		{"b_test.rego", strings.Replace(strings.Replace(asks, "call_test", "b_test", 1),
			`{"vmid"`, `{"vmix"`, 1), `has no argument "vmix"`},
		{"b_test.rego", "package caponier.site.b_test\n\nimport data.caponier.testing\n\n" +
			"test_typo if not testing.decide(testing.call(\"nope\", {}, \"demo\")).allow\n",
			`the lock has no tool "nope"`},
	} {
		before, had := tree(t, dir)["site/"+c.file]
		write(t, dir+"/site/"+c.file, c.text)
		if out, err := run(); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s, want %q: %v\n%s", c.file, c.want, err, out)
		}
		if had {
			write(t, dir+"/site/"+c.file, before)
		} else if err := os.Remove(dir + "/site/" + c.file); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := run(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The host loads the same folder with the same tests, and finds the same failure.
func TestTheHostRunsTheTestsOfAnExport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "policy")
	export(t, dir, "1.0.0")
	write(t, dir+"/site/data_test.rego", asks)
	rep, err := load.Check(t.Context(), dir+"/site", inventory(t))
	if err != nil || rep.Tests != 2 {
		t.Fatal(rep, err)
	}
	data := tree(t, dir)["site/data.yaml"]
	write(t, dir+"/site/data.yaml", strings.Replace(data, `"103":`, `"113":`, 1))
	_, err = load.Check(t.Context(), dir+"/site", inventory(t))
	if err == nil || !strings.Contains(err.Error(), "test_103_is_protected did not pass") {
		t.Error(err)
	}
	if _, err = load.Check(t.Context(), dir+"/site", load.Inventory{}); err == nil ||
		!strings.Contains(err.Error(), "no lock is known") {
		t.Error(err)
	}
}

func TestAnExportHasNoTestsOfCore(t *testing.T) {
	dir := t.TempDir()
	rep := export(t, dir, "1.0.0")
	if len(rep.Written) < 60 || !strings.HasSuffix(rep.Site, "examples/lab/site") {
		t.Errorf("%+v", rep)
	}
	for name := range tree(t, dir) {
		if strings.HasSuffix(name, "_test.rego") {
			t.Error(name)
		}
	}
	for _, name := range []string{"core/call.rego", "core/grammar/pct.yaml", "capabilities.json",
		"schemas/input.schema", "testing/data.json", "testing/testing.rego", "ci.sh",
		"CAPONIER.md", "site/data.yaml"} {
		if !slices.Contains(rep.Written, name) {
			t.Errorf("%s was not written", name)
		}
	}
}

// An export is renewed: what an older one wrote is made new or removed, what the site has stays,
// and what would be lost ends it before anything is written.
func TestAnExportIsRenewed(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/.git/config", "[core]\n")
	export(t, dir, "1.0.0")
	write(t, dir+"/site/data.yaml", "mine: true\n")
	write(t, dir+"/site/sub/x.rego", "package caponier.site.x\n")
	write(t, dir+"/README.md", "mine\n")
	// as an older version left it: one file of another text, one that is no more
	old := tree(t, dir)[".caponier-export"]
	next := strings.Replace(old, `"CAPONIER.md"`, `"core/gone.rego": "`+
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"+`",`+"\n    "+
		`"CAPONIER.md"`, 1)
	write(t, dir+"/core/gone.rego", "")
	write(t, dir+"/.caponier-export", next)
	before := tree(t, dir)
	rep := export(t, dir, "1.1.0")
	after := tree(t, dir)
	if rep.Before != "1.0.0" || !slices.Equal(rep.Removed, []string{"core/gone.rego"}) ||
		!slices.Equal(rep.Written, []string{"CAPONIER.md"}) || rep.Site != "" {
		t.Errorf("%+v", rep)
	}
	for _, name := range []string{"CAPONIER.md", "core/gone.rego", ".caponier-export"} {
		delete(before, name)
		delete(after, name)
	}
	if !maps.Equal(before, after) {
		t.Error("another file was touched")
	}
	for _, c := range []struct {
		claim, file, text, version, want string
	}{
		{"a changed file", "core/call.rego", "package x\n", "1.1.0", "call.rego was changed since"},
		{"an older program", "", "", "1.0.0", "newer than this program (1.0.0)"},
		{"a manifest that is none", ".caponier-export", "x", "1.1.0", "bring it back"},
		{"a manifest that climbs", ".caponier-export",
			`{"caponier": "1.0.0", "files": {"../x": "00"}}`, "1.1.0", `lists "../x"`},
		{"a manifest that lists the site", ".caponier-export",
			`{"caponier": "1.0.0", "files": {"site/data.yaml": "00"}}`, "1.1.0", `lists "site/`},
		{"a file of another", ".caponier-export", `{"caponier": "1.0.0", "files": {}}`, "1.1.0",
			"CAPONIER.md"},
	} {
		t.Run(c.claim, func(t *testing.T) {
			was := tree(t, dir)
			if c.file != "" {
				write(t, filepath.Join(dir, c.file), c.text)
				defer write(t, filepath.Join(dir, c.file), was[c.file])
			}
			if strings.Contains(c.claim, "another") {
				write(t, filepath.Join(dir, "CAPONIER.md"), "mine\n")
				defer write(t, filepath.Join(dir, "CAPONIER.md"), was["CAPONIER.md"])
			}
			at := tree(t, dir)
			_, err := repo.Write(repo.Options{Dir: dir, Site: lab, Version: c.version,
				Inventory: inventory(t)})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if !maps.Equal(at, tree(t, dir)) {
				t.Error("it wrote something")
			}
		})
	}
}

func TestAFolderWithOtherThingsIsRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/main.go", "package main\n")
	_, err := repo.Write(repo.Options{Dir: dir, Site: lab, Version: "1.0.0"})
	if err == nil || !strings.Contains(err.Error(), "holds main.go and no export: name a new or "+
		"empty folder, such as "+dir+"/policy") || len(tree(t, dir)) != 1 {
		t.Error(err)
	}
	// a link in an export leads nowhere outside of it
	dir, other := t.TempDir(), t.TempDir()
	export(t, dir, "1.0.0")
	if err := os.RemoveAll(dir + "/core"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, dir+"/core"); err != nil {
		t.Fatal(err)
	}
	if _, err = repo.Write(repo.Options{Dir: dir, Site: lab, Version: "1.1.0",
		Inventory: inventory(t)}); err == nil || len(tree(t, other)) != 0 {
		t.Errorf("%v: %v", err, tree(t, other))
	}
}

// Whatever a manifest says, an export touches nothing but what it writes: not the site, not the
// files beside it, not those of another folder.
func FuzzManifest(f *testing.F) {
	for _, text := range []string{`{}`, `{"caponier": "1.0.0", "files": {"../other": "00"}}`, "",
		`{"caponier": "9", "files": {"site/data.yaml": "00", "mine": "` + mineSum + `"}}`,
		`{"caponier": "v1", "files": {"core/../mine": "` + mineSum + `", ".": ""}}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		above := t.TempDir()
		dir := above + "/policy"
		write(t, above+"/other", "mine\n")
		write(t, dir+"/site/data.yaml", "mine\n")
		write(t, dir+"/README.md", "mine\n")
		write(t, dir+"/.caponier-export", text)
		_, err := repo.Write(repo.Options{Dir: dir, Site: lab, Version: "1.0.0"})
		after := tree(t, above)
		if after["other"] != "mine\n" || after["policy/site/data.yaml"] != "mine\n" {
			t.Errorf("%q: %v: a file of the site or beside it was touched", text, err)
		}
		// a manifest that lists a file with its digest says that an export wrote it
		if after["policy/README.md"] != "mine\n" && !strings.Contains(text, mineSum) {
			t.Errorf("%q: %v: README.md was touched", text, err)
		}
	})
}

// mineSum is the SHA-256 of "mine" and a line break.
const mineSum = "fcbc800db3f1867000b852f1ce0044b8f1584f76ade1ed6e65189824f95c3cda"
