package load_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/policy/load"
)

// A start asks whether the site's tests passed with its revision, and runs them unless they did. A
// reload runs them whatever is remembered.
func TestTestsOfASiteRunUnlessTheyPassedWithItsRevision(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile("../../../examples/lab/site/data.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write("data.yaml", string(data))
	write("rules.rego", "package caponier.site.call\n\ndeny contains "+
		"{\"id\": \"site.x\", \"msg\": \"no\"} if input.tool.name == \"reboot_node\"\n")
	works := "package caponier.site.call\n\ntest_it if count(deny) == 0 with input as {}\n"
	fails := strings.Replace(works, "== 0", "== 1", 1)

	write("rules_test.rego", works)
	var passed []string
	o := load.Options{Site: dir, Passed: func(r string) { passed = append(passed, r) }}
	s, err := load.New(context.Background(), o)
	if err != nil || !slices.Equal(passed, []string{s.Revision()}) {
		t.Fatalf("%v: told %v", err, passed)
	}

	write("rules_test.rego", fails)
	o.Tested = func(r string) bool { return slices.Contains(passed, r) }
	if _, err = load.New(context.Background(), o); err == nil ||
		!strings.Contains(err.Error(), "test_it did not pass") {
		t.Errorf("tests that differ from those that passed: %v", err)
	}
	var asked string
	o.Tested = func(r string) bool { asked = r; return true }
	if s, err = load.New(context.Background(), o); err != nil || asked != s.Revision() {
		t.Fatalf("tests that passed before run again: %v", err)
	}
	write("rules.rego", "package caponier.site.call\n\ndeny contains "+
		"{\"id\": \"site.y\", \"msg\": \"no\"} if input.tool.name == \"reboot_node\"\n")
	if err := s.Reload(context.Background()); err == nil ||
		!strings.Contains(err.Error(), "test_it did not pass") {
		t.Errorf("a reload does not run the tests: %v", err)
	}
}
