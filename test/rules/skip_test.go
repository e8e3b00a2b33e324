package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// skips returns where a file skips a test without test/needs, which fails where CI=true.
func skips(t *testing.T, name string, source any) (found []string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	tests := false
	for _, i := range file.Imports {
		tests = tests || i.Path.Value == `"testing"`
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, is := n.(*ast.SelectorExpr)
		if !is || !tests {
			return true
		}
		from, _ := call.X.(*ast.Ident)
		switch call.Sel.Name {
		case "Skip", "Skipf", "SkipNow":
			if from == nil || from.Name != "needs" {
				found = append(found, files.Position(call.Pos()).String())
			}
		}
		return true
	})
	return found
}

// A test must not skip in CI, because then nobody runs it.
func TestNoTestSkipsInCI(t *testing.T) {
	for _, file := range sources(t, "*.go") {
		if strings.HasSuffix(file, "test/needs/needs.go") {
			continue
		}
		for _, at := range skips(t, file, nil) {
			t.Errorf("%s skips a test: use a function of test/needs, and have .ci/run install it",
				at)
		}
	}
}

func TestASkipIsFound(t *testing.T) {
	const file = `package x
		import "testing"
		func a(t *testing.T) { t.Skip("x") }
		func b(w world) { w.t.Skipf("x"); skip := w.b.SkipNow; skip() }
		func c(t *testing.T) { needs.Skip(t, "x") }`
	if found := skips(t, "x.go", file); len(found) != 3 {
		t.Errorf("found %v, want three", found)
	}
}
