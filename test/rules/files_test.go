package rules

import (
	"fmt"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// arrows is a graph of the files of one package: from each file to the files whose package-level
// names, methods or fields it uses, each with one of those names.
type arrows map[string]map[string]string

func arrowsOf(p *packages.Package) arrows {
	out := arrows{}
	file := func(o types.Object) string { return filepath.Base(p.Fset.Position(o.Pos()).Filename) }
	for id, o := range p.TypesInfo.Uses {
		if o.Pkg() != p.Types || !o.Pos().IsValid() {
			continue
		}
		v, isVar := o.(*types.Var)
		f, isFunc := o.(*types.Func)
		method := isFunc && f.Signature().Recv() != nil
		if o.Parent() != p.Types.Scope() && !method && !(isVar && v.IsField()) {
			continue // a local name
		}
		from, to := filepath.Base(p.Fset.Position(id.Pos()).Filename), file(o)
		if from == to {
			continue
		}
		if out[from] == nil {
			out[from] = map[string]string{}
		}
		if name := o.Name(); out[from][to] == "" || name < out[from][to] {
			out[from][to] = name
		}
	}
	return out
}

// reaches returns the files that can be reached from one, along any number of arrows.
func (a arrows) reaches(from string) map[string]bool {
	seen := map[string]bool{}
	var walk func(string)
	walk = func(f string) {
		for to := range a[f] {
			if !seen[to] {
				seen[to] = true
				walk(to)
			}
		}
	}
	walk(from)
	return seen
}

// circles returns the arrows that lead back to where they start, as "from → to (name)", and how
// many arrows there are.
func (a arrows) circles() (found []string, all int) {
	for _, from := range slices.Sorted(maps.Keys(a)) {
		for _, to := range slices.Sorted(maps.Keys(a[from])) {
			all++
			if a.reaches(to)[from] {
				found = append(found, fmt.Sprintf("%s → %s (%s)", from, to, a[from][to]))
			}
		}
	}
	return found, all
}

// plantedCircle is two files that use each other, which the test must find.
var plantedCircle = map[string]string{
	"planted_a.go": "package fair\n\ntype plantedA struct{ b plantedB }\n",
	"planted_b.go": "package fair\n\ntype plantedB struct{ a *plantedA }\n",
}

// The files of a package depend on each other in one direction, like packages: a reader who starts
// at the bottom never meets a name that is declared further up. The compiler's rules resolve the
// types, so a name in a comment or of another package is not an arrow.
func TestShapeFilesDoNotCircle(t *testing.T) {
	for _, p := range loadHost(t, nil) {
		name, ours := strings.CutPrefix(p.PkgPath, module+"host/")
		if !ours {
			continue
		}
		found, all := arrowsOf(p).circles()
		if len(found) > 0 {
			t.Errorf(
				"host/%s: %d of %d arrows between files are part of circles; move what closes "+
					"them to the file below:\n\t%s", name, len(found), all,
				strings.Join(found, "\n\t"))
		}
	}
}

// A test that cannot fail proves nothing: a circle that is planted is found.
func TestShapeACircleOfFilesIsFound(t *testing.T) {
	root, err := rootDir()
	if err != nil {
		t.Fatal(err)
	}
	overlay := map[string][]byte{}
	for name, text := range plantedCircle {
		overlay[filepath.Join(root, "host/fair", name)] = []byte(text)
	}
	want := []string{"planted_a.go → planted_b.go (plantedB)",
		"planted_b.go → planted_a.go (plantedA)"}
	found, _ := arrowsOf(loadPackages(t, false, overlay, "./host/fair")[0]).circles()
	if !slices.Equal(found, want) {
		t.Errorf("circles %q, want %q", found, want)
	}
}
