package rules

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// acts are the methods that reach a node, a plugin or another server. Only gate calls them, each
// once, inside a function that it gives to pass. Ready logs in to the node of the call.
var acts = map[string][]string{
	"terms.Executor": {"Execute", "Lookup"},
	"gate.Runner":    {"Run", "Ready"},
}

// sideDoor is a helper that calls an executor without a decision, which the test must find.
const sideDoor = `package main

import (
	"context"

	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/caponier-mcp/caponier/host/terms"
)

func sideDoor(r *remote.Remote, q terms.Question) {
	r.Execute(context.Background(), q, terms.Decision{Allow: true})
	var e terms.Executor = r
	f := e.Lookup
	f(context.Background(), q)
}
`

// loadHost returns the packages of host and sdk, with files that are planted among them.
func loadHost(t *testing.T, planted map[string][]byte) []*packages.Package {
	t.Helper()
	if len(planted) == 0 && asTheyAre != nil {
		return asTheyAre
	}
	pkgs := loadPackages(t, false, planted, "./host/...", module+"sdk/...")
	if len(planted) == 0 {
		asTheyAre = pkgs
	}
	return pkgs
}

var asTheyAre []*packages.Package // of loadHost without anything planted

// loadPackages returns the packages with their types, and with tests each package's tests as well.
// What they import from elsewhere has no syntax: its types are read from what the compiler wrote.
func loadPackages(t *testing.T, tests bool, overlay map[string][]byte,
	patterns ...string) []*packages.Package {
	t.Helper()
	mode := packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles |
		packages.NeedImports | packages.NeedTypes | packages.NeedSyntax |
		packages.NeedTypesInfo | packages.NeedModule | packages.NeedExportFile
	pkgs, err := packages.Load(&packages.Config{Mode: mode, Dir: "../..", Overlay: overlay,
		Tests: tests, BuildFlags: []string{"-buildvcs=false", "-tags=conformance"}}, patterns...)
	if err != nil {
		t.Fatal(err)
	}
	if packages.PrintErrors(pkgs) > 0 {
		t.Fatal("the packages do not compile")
	}
	return pkgs
}

// uses returns each use of a method of acts, on any type that implements the interface, as
// "package function method". A method value counts as a call.
func uses(t *testing.T, pkgs []*packages.Package) (found []string) {
	t.Helper()
	for _, p := range pkgs {
		for act, methods := range acts {
			in, name, _ := strings.Cut(act, ".")
			declaring := p.Types
			for _, imp := range p.Types.Imports() {
				if imp.Path() == module+"host/"+in {
					declaring = imp
				}
			}
			if declaring.Path() != module+"host/"+in {
				continue // without that package it cannot name a question, or a running call
			}
			iface := declaring.Scope().Lookup(name).Type().Underlying().(*types.Interface)
			for _, file := range p.Syntax {
				found = append(found, usesIn(p, file, iface, name, methods)...)
			}
		}
	}
	slices.Sort(found)
	return found
}

func usesIn(p *packages.Package, file *ast.File, iface *types.Interface, name string,
	methods []string) (found []string) {
	in := ""
	ast.Inspect(file, func(n ast.Node) bool {
		if f, ok := n.(*ast.FuncDecl); ok {
			in = f.Name.Name
		}
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || !slices.Contains(methods, sel.Sel.Name) {
			return true
		}
		s := p.TypesInfo.Selections[sel]
		if s == nil {
			return true
		}
		recv := s.Recv()
		if types.Implements(recv, iface) || types.Implements(types.NewPointer(recv), iface) {
			found = append(found, fmt.Sprintf("%s %s %s.%s",
				strings.TrimPrefix(p.PkgPath, module), in, name, sel.Sel.Name))
		}
		return true
	})
	return found
}

// wrappers may call the executor or runner that they wrap, because gate calls them in its place.
var wrappers = []string{
	"host/cmd/caponier Ready Runner.Ready",
	"host/native Ready Runner.Ready",
	"host/native Run Runner.Run",
	"host/offline Run Runner.Run",
	"host/undo Execute Executor.Execute",
	"host/lease Execute Executor.Execute",
	"host/recording Execute Executor.Execute",
	"host/undo record Executor.Execute",
	"host/result Execute Executor.Execute",
	"host/result Run Runner.Run",
}

func TestOnlyTheGateActs(t *testing.T) {
	want := []string{
		"host/cmd/caponier make Runner.Ready", // of the sandbox, which reaches no node
		"host/gate effect Executor.Execute",
		"host/gate lookup Executor.Lookup",
		"host/gate passCall Runner.Ready",
		"host/gate run Runner.Run",
	}
	found := slices.DeleteFunc(uses(t, loadHost(t, nil)), func(f string) bool {
		return slices.Contains(wrappers, f)
	})
	if !slices.Equal(found, want) {
		t.Errorf("what reaches a node or a plugin:\n%s\nwant only:\n%s",
			strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
}

// A test that cannot fail proves nothing: a side door that is planted in package main is found.
func TestASideDoorIsFound(t *testing.T) {
	root, err := rootDir()
	if err != nil {
		t.Fatal(err)
	}
	planted := map[string][]byte{root + "/host/cmd/caponier/side_door.go": []byte(sideDoor)}
	found := uses(t, loadHost(t, planted))
	for _, want := range []string{"host/cmd/caponier sideDoor Executor.Execute",
		"host/cmd/caponier sideDoor Executor.Lookup"} {
		if !slices.Contains(found, want) {
			t.Errorf("the planted call %q is not found among %q", want, found)
		}
	}
}

// beside lists the methods of remote.Remote that reach a node without a decision on an operation,
// each with the only package that may use it. docs/threats.md gives the reason.
var beside = map[string]string{
	"Ask": "host/doctor", "Link": "host/doctor", "Lacks": "host/doctor",
	"Connect": "host/cmd/caponier",
}

func TestOnlyTheDoctorAndAnAllowedCallReachNodesBesideTheGate(t *testing.T) {
	found, connects := 0, []string{}
	for _, p := range loadHost(t, nil) {
		pkg := strings.TrimPrefix(p.PkgPath, module)
		for sel, s := range p.TypesInfo.Selections {
			f, isFunc := s.Obj().(*types.Func)
			if !isFunc || f.Pkg() == nil {
				continue
			}
			if pkg == "host/cmd/caponier" && strings.EqualFold(f.Name(), "connect") {
				connects = append(connects, f.FullName())
			}
			if f.Pkg().Path() != module+"host/remote" {
				continue
			}
			only, isBeside := beside[f.Name()]
			if !isBeside || pkg == "host/remote" {
				continue
			}
			if found++; pkg != only {
				t.Errorf("%s uses remote's %s; only %s may", pkg, sel.Sel.Name, only)
			}
		}
	}
	if found == 0 {
		t.Error("no use is found, so that this test proves nothing")
	}
	// The runner's Ready has the one call of host.connect, and that the one of Remote.Connect.
	slices.Sort(connects)
	want := []string{"(*" + module + "host/cmd/caponier.host).connect",
		"(*" + module + "host/remote.Remote).Connect"}
	if !slices.Equal(connects, want) {
		t.Errorf("package main connects by %q, want each of %q once", connects, want)
	}
}

// sends are the functions of remote's internal packages that send something to a node. Go keeps
// every package but remote from them.
var sends = []string{"command.Run", "conn.Acquire", "conn.Connect", "conn.Link", "conn.Open",
	"conn.Session", "files.With"}

// senders returns each use of sends in remote, as "function package.Name".
func senders(pkgs []*packages.Package) (found []string) {
	for _, p := range pkgs {
		if p.PkgPath != module+"host/remote" {
			continue
		}
		for _, file := range p.Syntax {
			in := ""
			ast.Inspect(file, func(n ast.Node) bool {
				if f, ok := n.(*ast.FuncDecl); ok {
					in = f.Name.Name
				}
				id, ok := n.(*ast.Ident)
				if !ok {
					return true
				}
				f, ok := p.TypesInfo.Uses[id].(*types.Func)
				if !ok || f.Pkg() == nil {
					return true
				}
				name := f.Pkg().Name() + "." + f.Name()
				if slices.Contains(sends, name) &&
					strings.HasPrefix(f.Pkg().Path(), module+"host/remote/internal/") {
					found = append(found, in+" "+name)
				}
				return true
			})
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// sideSender is a method that sends a command without a decision, which the test must find.
const sideSender = `package remote

import (
	"context"

	"github.com/caponier-mcp/caponier/host/remote/internal/command"
)

func (n *node) sideSender(ctx context.Context) {
	command.Run(ctx, n.Node.Node, command.Command{Text: "id"})
}
`

// Only the functions that Execute and Lookup call send what was decided, and End, which removes
// what a call staged. Ask, Lacks and Link belong to the doctor. Connect logs in ahead of a call.
func TestOnlyTheExecutorSendsToNodes(t *testing.T) {
	want := []string{"Ask command.Run", "Connect conn.Connect", "Lacks files.With",
		"Link conn.Link", "Lookup files.With", "ask command.Run", "command command.Run",
		"file files.With", "remove files.With", "stage files.With"}
	if found := senders(loadHost(t, nil)); !slices.Equal(found, want) {
		t.Errorf("what sends to a node:\n%s\nwant only:\n%s", strings.Join(found, "\n"),
			strings.Join(want, "\n"))
	}
	root, err := rootDir()
	if err != nil {
		t.Fatal(err)
	}
	planted := map[string][]byte{root + "/host/remote/side_sender.go": []byte(sideSender)}
	if found := senders(loadHost(t, planted)); !slices.Contains(found, "sideSender command.Run") {
		t.Errorf("the planted call is not found among %q", found)
	}
}
