package load

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// A linter passes once over each rule of one module.
type linter struct {
	*Candidate
	module *ast.Module
	used   map[string]bool    // names of rules that something refers to
	asked  map[string]bool    // arguments that the module knows can be omitted; "*" for all
	typed  bool               // data.site is, or it was said that it is not
	bodies []ast.Body         // around the place of the pass
	paths  map[ast.Var]string // of the fields that the rule's variables stand for
	found  []error
}

func (l *linter) say(at *ast.Location, format string, a ...any) {
	l.found = append(l.found, fmt.Errorf("%s:%d: %s", at.File, at.Row, fmt.Sprintf(format, a...)))
}

// call is a call of a function or an operator, as an expression or within one.
type call struct {
	at       *ast.Location
	name     string
	operands []*ast.Term
	negated  bool
}

func callOf(x any) (c call, ok bool) {
	switch x := x.(type) {
	case *ast.Expr:
		if x.IsCall() {
			return call{x.Location, x.Operator().String(), x.Operands(), x.Negated}, true
		}
	case *ast.Term:
		if c, ok := x.Value.(ast.Call); ok {
			return call{x.Location, c[0].String(), c[1:], false}, true
		}
	}
	return c, false
}

// entry returns call, operation or plan for the packages whose deny is asked, else "".
func (l *linter) entry() string {
	name := strings.TrimPrefix(l.module.Package.Path.String(), "data.caponier.site.")
	if slices.Contains([]string{"call", "operation", "plan", "result"}, name) {
		return name
	}
	return ""
}

func nameOf(rule *ast.Rule) string { return rule.Head.Ref()[0].Value.String() }

func textOf(t *ast.Term) string {
	s, _ := t.Value.(ast.String)
	return string(s)
}

// owned returns the site's modules in the order of their files.
func (c *Candidate) owned(modules map[string]*ast.Module) (all []*ast.Module) {
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		if owned(name) {
			all = append(all, modules[name])
		}
	}
	return all
}
