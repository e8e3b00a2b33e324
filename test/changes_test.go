package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// make changes asks for a change note when what users see differs from the base, and for none else.
func TestChangesAsksForANote(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command(
			"git",
			append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v %s", args, err, out)
		}
	}
	write := func(name, text string) {
		t.Helper()
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	makefile, err := os.ReadFile("../Makefile")
	must(t, err)
	write("Makefile", string(makefile))
	write("CHANGELOG.md", "# Changelog\n")
	write("config.toml", "a = 1\n")
	write("host/cmd/caponier/main.go", "package main\n")
	write("host/cmd/caponier/main_test.go", "package main\n")
	git("init", "-q", "-b", "main")
	git("add", "-A")
	git("commit", "-q", "-m", "base")
	git("branch", "base")
	ask := func(claim, base string, fails bool, want string) {
		t.Helper()
		cmd := exec.Command("make", "-s", "changes", "BASE="+base)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if (err != nil) != fails || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v %s", claim, err, out)
		}
	}
	ask("nothing changed", "base", false, "")
	ask("there is no base", "origin/none", false, "there is no origin/none to compare with")
	write("host/cmd/caponier/main_test.go", "package main // more\n")
	ask("a test is nothing that users see", "base", false, "")
	write("config.toml", "a = 2\n")
	ask("a key that nobody committed yet", "base", true, "config.toml\nAdd a line under")
	git("commit", "-aqm", "a key")
	ask("a key that was committed", "base", true, "config.toml\nAdd a line under")
	write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n- a is 2.\n")
	ask("a note", "base", false, "")
	git("commit", "-aqm", "note")
	ask("a note that was committed", "base", false, "")
}
