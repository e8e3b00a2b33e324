package rules

import (
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// unusedExempt are prefixes of names that may have no user in this tree.
var unusedExempt = []string{
	"host/remote/sshtest.",  // helpers of tests
	"host/front/fronttest.", // helpers of tests
	"host/terms.Err",        // kinds of errors, for errors.Is
}

// byConvention are methods that the standard library calls through interfaces without a name.
var byConvention = []string{"Is", "As", "Unwrap", "FlushError"}

// nameOf returns "package.Name" or "package.Type.Method", which is the same in every variant of a
// package that tests make; "" for an object that is no package-level name and no method.
func nameOf(o types.Object) string {
	if o == nil || o.Pkg() == nil {
		return ""
	}
	if f, ok := o.(*types.Func); ok {
		o = f.Origin()
		recv := f.Origin().Signature().Recv()
		if recv == nil {
			return o.Pkg().Path() + "." + o.Name()
		}
		named := namedOf(recv.Type())
		if named == nil {
			return ""
		}
		return o.Pkg().Path() + "." + named.Obj().Name() + "." + o.Name()
	}
	if o.Parent() != o.Pkg().Scope() {
		return ""
	}
	return o.Pkg().Path() + "." + o.Name()
}

func namedOf(t types.Type) *types.Named {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	named, _ := types.Unalias(t).(*types.Named)
	return named
}

// ourTree reports whether the names of a package are checked.
func ourTree(path string) bool {
	return strings.HasPrefix(path, module+"host/") || strings.HasPrefix(path, module+"client/")
}

// exported is a host package's exported names, with the objects that they stand for.
type exported map[string]types.Object

func exportsOf(pkgs []*packages.Package) exported {
	out := exported{}
	for _, p := range pkgs {
		if p.ID != p.PkgPath || p.Name == "main" ||
			!ourTree(p.PkgPath) {
			continue // a variant that a test makes
		}
		for _, name := range p.Types.Scope().Names() {
			o := p.Types.Scope().Lookup(name)
			if o.Exported() {
				out[nameOf(o)] = o
			}
			named, ok := o.Type().(*types.Named)
			_, isType := o.(*types.TypeName)
			if !isType || !ok || !o.Exported() || types.IsInterface(named) {
				continue
			}
			for m := range named.Methods() {
				if m.Exported() && !slices.Contains(byConvention, m.Name()) {
					out[nameOf(m)] = m
				}
			}
		}
	}
	return out
}

// templates returns the text of the templates beside a package's files, which call its methods.
func templates(t *testing.T, p *packages.Package) (text string) {
	t.Helper()
	for _, ending := range []string{"*.html", "*.tmpl"} {
		files, err := filepath.Glob(filepath.Join(p.Dir, ending))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text += read(t, f)
		}
	}
	return text
}

// usedNames returns the names that another package writes, an external test included.
func usedNames(pkgs []*packages.Package) map[string]bool {
	used := map[string]bool{}
	for _, p := range pkgs {
		for _, o := range p.TypesInfo.Uses {
			if o.Pkg() != nil && o.Pkg().Path() != p.PkgPath {
				used[nameOf(o)] = true
			}
		}
	}
	return used
}

// interfaces returns each named interface that the packages declare or import, and those that
// they write in place.
func interfaces(pkgs []*packages.Package) (found []*types.Interface) {
	add := func(t types.Type) {
		if i, ok := t.Underlying().(*types.Interface); ok && i.NumMethods() > 0 {
			found = append(found, i)
		}
	}
	add(types.Universe.Lookup("error").Type())
	seen := map[*types.Package]bool{}
	var visit func(*types.Package)
	visit = func(p *types.Package) {
		if seen[p] {
			return
		}
		seen[p] = true
		for _, name := range p.Scope().Names() {
			o, ok := p.Scope().Lookup(name).(*types.TypeName)
			if !ok {
				continue
			}
			if n, ok := o.Type().(*types.Named); ok && n.TypeParams().Len() == 0 {
				add(n)
			}
		}
		for _, imp := range p.Imports() {
			visit(imp)
		}
	}
	for _, p := range pkgs {
		visit(p.Types)
		for _, tv := range p.TypesInfo.Types {
			if i, ok := tv.Type.(*types.Interface); ok && tv.IsType() {
				add(i)
			}
		}
	}
	return found
}

// implementing returns the methods by which a type of host implements an interface.
func implementing(pkgs []*packages.Package) map[string]bool {
	used, ifaces := map[string]bool{}, interfaces(pkgs)
	for _, p := range pkgs {
		if !ourTree(p.PkgPath) {
			continue
		}
		for _, o := range p.TypesInfo.Defs {
			name, ok := o.(*types.TypeName)
			if !ok || types.IsInterface(name.Type()) {
				continue
			}
			ptr := types.NewPointer(name.Type())
			for _, i := range ifaces {
				if !types.Implements(ptr, i) {
					continue
				}
				for m := range i.Methods() {
					f, _, _ := types.LookupFieldOrMethod(ptr, true, p.Types, m.Name())
					used[nameOf(f)] = true
				}
			}
		}
	}
	return used
}

// reach adds the types that a used name's type mentions: a caller holds them without naming them.
func (x exported) reach(used map[string]bool) {
	for grew := true; grew; {
		grew = false
		for name, o := range x {
			if set := namedOf(o.Type()); set != nil && set.Obj().Pkg() == o.Pkg() {
				if _, ok := o.(*types.Const); ok && used[nameOf(set.Obj())] {
					used[name] = true // one of a set of values
				}
			}
			if !used[name] {
				continue
			}
			mentioned(o, func(t *types.TypeName) {
				if n := nameOf(t); !used[n] {
					used[n], grew = true, true
				}
			})
		}
	}
}

// mentioned calls f with each type that the declaration of o mentions where others can see it.
func mentioned(o types.Object, f func(*types.TypeName)) {
	var walk func(types.Type)
	tuple := func(t *types.Tuple) {
		for v := range t.Variables() {
			walk(v.Type())
		}
	}
	walk = func(t types.Type) {
		switch t := t.(type) {
		case *types.Alias:
			f(t.Obj())
			walk(types.Unalias(t))
		case *types.Named:
			f(t.Origin().Obj())
			for a := range t.TypeArgs().Types() {
				walk(a)
			}
		case *types.Signature:
			tuple(t.Params())
			tuple(t.Results())
		case *types.Struct:
			for v := range t.Fields() {
				if v.Exported() {
					walk(v.Type())
				}
			}
		case *types.Interface:
			for m := range t.Methods() {
				walk(m.Type())
			}
		case *types.Map:
			walk(t.Key())
			walk(t.Elem())
		case interface{ Elem() types.Type }:
			walk(t.Elem())
		}
	}
	walk(o.Type())
	if _, ok := o.(*types.TypeName); ok {
		walk(o.Type().Underlying())
	}
}

func unusedNames(t *testing.T, overlay map[string][]byte) (unused []string) {
	t.Helper()
	pkgs := loadPackages(t, true, overlay, "./host/...", "./client/...", "./test/...")
	x, used := exportsOf(pkgs), usedNames(pkgs)
	for name := range implementing(pkgs) {
		used[name] = true
	}
	for _, p := range pkgs {
		text := templates(t, p)
		for name, o := range x {
			f, ok := o.(*types.Func)
			if ok && o.Pkg() == p.Types && f.Signature().Recv() != nil &&
				strings.Contains(text, "."+o.Name()) {
				used[name] = true
			}
		}
	}
	x.reach(used)
	for name := range x {
		name, exempt := strings.TrimPrefix(name, module), used[name]
		for _, prefix := range unusedExempt {
			exempt = exempt || strings.HasPrefix(name, prefix)
		}
		if !exempt {
			unused = append(unused, name)
		}
	}
	slices.Sort(unused)
	return unused
}

// plantedNames has exported names that nothing uses, which the test must find.
const plantedNames = `package fair

type Planted struct{}

func (Planted) Method() {}

const PlantedConst = 1
`

// An exported name is a promise to other packages; one that none of them uses is unexported or
// deleted. Fields are not checked, and package main has no exports.
func TestShapeNoExportedNameIsUnused(t *testing.T) {
	root, err := rootDir()
	if err != nil {
		t.Fatal(err)
	}
	planted := []string{"host/fair.Planted", "host/fair.Planted.Method", "host/fair.PlantedConst"}
	found := unusedNames(t, map[string][]byte{root + "/host/fair/planted.go": []byte(plantedNames)})
	for _, name := range planted {
		if !slices.Contains(found, name) {
			t.Errorf("the planted name %s is not found", name)
		}
	}
	for _, name := range found {
		if !slices.Contains(planted, name) {
			t.Errorf("%s is exported, but no other package uses it: unexport or delete it", name)
		}
	}
}
