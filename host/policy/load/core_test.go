package load

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
)

// The tests of core and of the helpers cover what is built in.
func TestTheTestsOfCoreCoverIt(t *testing.T) {
	c, err := Untested(t.Context(), "../../../policies/examples/team")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, glob := range []string{"core/*_test.rego", "core/*/*_test.rego", "testing/*_test.rego"} {
		found, err := filepath.Glob("../../../policies/" + glob)
		if err != nil || len(found) == 0 {
			t.Fatal(glob, found, err)
		}
		files = append(files, found...)
	}
	tests := map[string]*ast.Module{}
	for _, file := range files {
		name := strings.TrimPrefix(file, "../../../policies/")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if tests[name], err = c.parseModule(name, data); err != nil {
			t.Fatal(err)
		}
	}
	covered := &covering{Cover: cover.New(), held: map[string]bool{}}
	results, err := c.runTests(t.Context(), tests, covered)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if !r.Pass() {
			t.Errorf("%s %s: %s", r.Location, testName(r), output(r))
		}
	}
	core := maps.Clone(c.modules)
	maps.DeleteFunc(core, func(name string, _ *ast.Module) bool { return owned(name) })
	var modules []*ast.Module
	for _, m := range core {
		modules = append(modules, m)
	}
	percent, rules := covered.of(modules)
	t.Logf("%d tests, %.1f %% of core", len(results), percent)
	if len(results) < 300 || percent < 95 {
		for _, r := range rules {
			if len(r.Missed) > 0 {
				t.Errorf("%s: %v", r.Rule, r.Missed)
			}
		}
	}
}
