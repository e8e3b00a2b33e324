package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Every key is read somewhere beside its validation: a key that does nothing looks like a limit and
// is none. Fields are found by name, in code that is no test.
func TestEveryKeyIsRead(t *testing.T) {
	read := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || strings.EqualFold(f.Name.Name, "validate") {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					read[s.Sel.Name] = true
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var walk func(reflect.Type, string)
	walk = func(s reflect.Type, at string) {
		for _, f := range reflect.VisibleFields(s) {
			if keyOf(f) == "" {
				continue
			}
			key, typ := strings.TrimPrefix(at+"."+keyOf(f), "."), f.Type
			if typ.Kind() == reflect.Slice {
				typ = typ.Elem()
			}
			if typ.Kind() == reflect.Struct {
				walk(typ, key)
			} else if !read[f.Name] {
				t.Errorf("%s is read by no code but its validation", key)
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
}
