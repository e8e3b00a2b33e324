package memo

import (
	"maps"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/open-policy-agent/opa/v1/ast"
)

// Members are members of an input. They do not change. The zero value is none.
type Members struct{ top member }

// A member is read whole, or by its type alone, or in what is below it.
type member struct {
	whole, kind bool
	below       map[string]*member
	names       []*ast.Term // of below, sorted
}

// MembersOf returns the members that the value of a rule can depend on, apart from those that it
// depends on through the rules that apart refers to alone. The compiler must have compiled all
// modules. It finds too many rather than too few: a reference with a variable in it counts as all
// that it may refer to.
func MembersOf(c *ast.Compiler, rule ast.Ref, apart ...ast.Ref) *Members {
	f := finder{compiler: c, seen: map[visit]bool{}, members: &Members{}}
	for _, ref := range apart {
		for _, r := range c.GetRulesExact(ref) {
			f.seen[visit{r, false}] = true
		}
	}
	f.follow(rule)
	f.members.top.sort()
	return f.members
}

type finder struct {
	compiler *ast.Compiler
	seen     map[visit]bool
	with     bool // what is visited stands below "with"
	members  *Members
}

type visit struct {
	rule *ast.Rule
	with bool
}

// follow finds what the rules depend on that a reference may refer to.
func (f *finder) follow(ref ast.Ref) {
	all := ast.RulesOptions{IncludeHiddenModules: true}
	for _, r := range f.compiler.GetRulesDynamicWithOpts(ref, all) {
		if f.seen[visit{r, f.with}] {
			continue
		}
		f.seen[visit{r, f.with}] = true
		f.visit(r, typesOnly(r))
	}
}

// visit goes through a rule with its alternatives. Some of its expressions ask for types alone.
func (f *finder) visit(r *ast.Rule, typed map[*ast.Expr]ast.Ref) {
	var v *ast.GenericVisitor
	v = ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.Expr:
			if ref := typed[x]; ref != nil {
				f.read(ref, true)
				return true
			}
			if len(x.With) > 0 && !f.with {
				f.with = true
				v.Walk(x)
				f.with = false
				return true
			}
		case *ast.With:
			// Below it the input, or what else is replaced, depends on the new value alone, and on
			// whether it can be set there.
			if ref, ok := x.Target.Value.(ast.Ref); ok && len(ref) > 1 &&
				ref.HasPrefix(ast.InputRootRef) {
				f.read(ref, false)
			}
			v.Walk(x.Value)
			return true
		case ast.Var:
			if x.Equal(ast.InputRootDocument.Value) {
				f.members.top.whole = true
			}
		case ast.Ref:
			if x.HasPrefix(ast.InputRootRef) {
				f.read(x, false)
			} else if x.HasPrefix(ast.DefaultRootRef) {
				f.follow(x)
			} else {
				v.Walk(x[0])
			}
			for _, t := range x[1:] {
				v.Walk(t)
			}
			return true
		}
		return false
	})
	v.Walk(r)
}

// read notes that a reference into the input is read.
func (f *finder) read(ref ast.Ref, kind bool) {
	m := &f.members.top
	for _, t := range ref[1:] {
		name, ok := t.Value.(ast.String)
		if !ok {
			kind = false
			break
		}
		if m.below == nil {
			m.below = map[string]*member{}
		}
		if m.below[string(name)] == nil {
			m.below[string(name)] = &member{}
		}
		m = m.below[string(name)]
	}
	m.kind = true
	m.whole = m.whole || !kind
}

func (m *member) sort() {
	for _, name := range slices.Sorted(maps.Keys(m.below)) {
		m.names = append(m.names, ast.InternedTerm(name))
		m.below[name].sort()
	}
}

// String lists the members.
func (m *Members) String() string { return strings.Join(m.top.paths("input", nil), " ") }

func (m *member) paths(at string, all []string) []string {
	if m.whole {
		return append(all, at)
	}
	if m.kind {
		all = append(all, "type_name("+at+")")
	}
	for _, name := range m.names {
		all = m.below[value.Text(name)].paths(at+"."+value.Text(name), all)
	}
	return all
}
