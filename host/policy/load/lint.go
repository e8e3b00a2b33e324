package load

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// A linter looks through one module of the site for what compiles and yet does not do what its
// author means. Each finding has file and line.
type linter struct {
	*Candidate
	module *ast.Module
	used   map[string]bool // names of rules that something refers to
	found  []error
}

// lint looks through the site's rules as they are written.
func (c *Candidate) lint() error {
	used := map[string]bool{}
	note := func(x any) {
		ast.WalkVars(x, func(v ast.Var) bool {
			used[string(v)] = true
			return false
		})
		ast.WalkRefs(x, func(ref ast.Ref) bool {
			used[textOf(ref[len(ref)-1])] = true
			return false
		})
	}
	for _, m := range c.owned(c.modules) {
		for _, rule := range m.Rules {
			for ; rule != nil; rule = rule.Else {
				note(rule.Body)
				for _, t := range []*ast.Term{rule.Head.Key, rule.Head.Value} {
					if t != nil {
						note(t)
					}
				}
			}
		}
	}
	var found []error
	for _, m := range c.owned(c.modules) {
		l := linter{Candidate: c, module: m, used: used}
		l.rules()
		l.refs()
		found = append(found, l.found...)
	}
	return errors.Join(found...)
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

func textOf(t *ast.Term) string {
	s, _ := t.Value.(ast.String)
	return string(s)
}

func (l *linter) say(at *ast.Location, format string, a ...any) {
	l.found = append(l.found, fmt.Errorf("%s:%d: %s", at.File, at.Row, fmt.Sprintf(format, a...)))
}

var (
	rootInput = ast.MustParseRef("input")
	rootSite  = ast.MustParseRef("data.site")
	// What grows with the number of guests and people is looked up by key: a search takes
	// milliseconds.
	inventories = []ast.Ref{
		ast.MustParseRef("data.site.principals"), ast.MustParseRef("data.site.protected"),
		ast.MustParseRef("data.site.tiers"), ast.MustParseRef("data.site.egress"),
	}
)

// entry returns call or operation for the packages whose deny is asked, else "".
func (l *linter) entry() string {
	switch l.module.Package.Path.String() {
	case "data.caponier.site.call":
		return "call"
	case "data.caponier.site.operation":
		return "operation"
	}
	return ""
}

func (l *linter) rules() {
	for _, rule := range l.module.Rules {
		name := rule.Head.Ref()[0].Value.String()
		switch deny := name == "deny"; {
		case deny && l.entry() == "":
			l.say(rule.Location, "deny in %s is never asked: use package caponier.site.call or "+
				"caponier.site.operation", strings.TrimPrefix(l.module.Package.Path.String(),
				"data."))
		case deny && rule.Head.RuleKind() != ast.MultiValue:
			l.say(rule.Location, `deny must be written "deny contains {"id": …, "msg": …} if `+
				`…": in any `+
				"other form it refuses nothing")
		case deny:
			l.reason(rule)
		case !l.used[name]:
			l.say(rule.Location, "nothing uses %s: is it a misspelt deny?", name)
		}
		ast.WalkBodies(rule, func(b ast.Body) bool {
			l.body(b)
			return false
		})
	}
	for _, imp := range l.module.Imports {
		ref, ok := imp.Path.Value.(ast.Ref)
		if ok && (ref.HasPrefix(rootInput) || ref.HasPrefix(rootSite)) {
			l.say(imp.Location, "write %s out where it is used: what an import hides is not "+
				"checked", ref)
		}
	}
	l.values()
}

// reason finds entries of deny that the host cannot read, which would refuse every question.
func (l *linter) reason(rule *ast.Rule) {
	const want = `an entry of deny is {"id": "site.NAME", "msg": "text"}`
	doc, ok := rule.Head.Key.Value.(ast.Object)
	if !ok {
		if _, isVar := rule.Head.Key.Value.(ast.Var); !isVar {
			l.say(rule.Location, "%s is no object: %s", rule.Head.Key, want)
		}
		return // the compiler knows the type of a variable; see lintCompiled
	}
	missing := map[string]bool{"id": true, "msg": true}
	doc.Foreach(func(k, v *ast.Term) {
		name := textOf(k)
		if !missing[name] {
			l.say(rule.Location, "%s does not belong here: %s", k, want)
		}
		delete(missing, name)
		switch v.Value.(type) {
		case ast.Number, ast.Boolean, ast.Null, *ast.Array, ast.Object, ast.Set:
			l.say(rule.Location, "%s is %s, not text: %s", name, v, want)
		}
	})
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		l.say(rule.Location, "%s is missing: %s", name, want)
	}
}

func (l *linter) refs() {
	typed := false
	for _, a := range l.module.Annotations {
		for _, s := range a.Schemas {
			typed = typed || s.Path.Equal(rootSite)
		}
	}
	ast.WalkTerms(l.module, func(t *ast.Term) bool {
		ref, isRef := t.Value.(ast.Ref)
		switch {
		case !isRef:
			return false
		case ref.Equal(rootInput):
			l.say(t.Location, "input as a whole hides misspelt fields: name the field")
		case ref.HasPrefix(rootSite) && !typed:
			l.say(t.Location, `data.site is not typed here: put a METADATA block with "schemas: - `+
				`data.site: schema.site" above the package, so that a misspelt key is an error`)
			typed = true // once is enough
		}
		for _, inv := range inventories {
			if ref.HasPrefix(inv) && !ref.IsGround() && slices.ContainsFunc(ref[len(inv):],
				wildcard) {
				l.say(t.Location, "%s is searched through: look it up by key", inv)
			}
		}
		return false
	})
}

func wildcard(t *ast.Term) bool {
	v, isVar := t.Value.(ast.Var)
	return isVar && v.IsWildcard()
}

func (l *linter) body(b ast.Body) {
	numbers := map[string]bool{}
	for _, e := range b {
		if e.IsCall() && e.Operator().String() == "is_number" {
			numbers[e.Operand(0).String()] = true
		}
	}
	for _, e := range b {
		if decl, ok := e.Terms.(*ast.SomeDecl); ok {
			l.some(decl)
			continue
		}
		ast.WalkTerms(e, func(t *ast.Term) bool {
			if c, ok := t.Value.(ast.Call); ok {
				l.call(t.Location, c[0].String(), c[1:], numbers)
			}
			return false
		})
		if e.Negated && e.IsCall() {
			l.negated(e)
		}
		if e.IsCall() {
			l.call(e.Location, e.Operator().String(), e.Operands(), numbers)
		}
	}
}

// negated finds "not f(data.site.x)": where x is missing, OPA takes the whole expression for
// undefined, not for true. A comparison may name such a value itself, but not within another call.
func (l *linter) negated(e *ast.Expr) {
	comparison := e.Operator().String() == "equal"
	for _, t := range e.Operands() {
		if _, direct := t.Value.(ast.Ref); direct && comparison {
			continue
		}
		ast.WalkRefs(t, func(ref ast.Ref) bool {
			if ref.HasPrefix(rootInput) || ref.HasPrefix(ast.Ref{ast.DefaultRootDocument}) {
				l.say(e.Location, "if %s is undefined this does not hold, and the rule is "+
					"silently off: name "+
					"it without not in a rule of its own, and negate that rule", ref)
			}
			return false
		})
	}
}

func (l *linter) some(decl *ast.SomeDecl) {
	for _, s := range decl.Symbols {
		c, ok := s.Value.(ast.Call)
		if !ok {
			continue
		}
		over, _ := c[len(c)-1].Value.(ast.Ref)
		for _, inv := range inventories {
			if over.HasPrefix(inv) {
				l.say(decl.Location, "%s is searched through: look it up by key", inv)
			}
		}
	}
}

func (l *linter) call(at *ast.Location, name string, operands []*ast.Term,
	numbers map[string]bool) {
	switch name {
	case "lt", "lte", "gt", "gte":
		for _, t := range operands {
			ref, ok := t.Value.(ast.Ref)
			if ok && ref.HasPrefix(rootInput) && !numbers[t.String()] {
				l.say(at, "%s is compared without is_number(%s) in the same body: null is less "+
					"than every "+
					"number", t, t)
			}
		}
	case "object.get":
		if ref, ok := operands[0].Value.(ast.Ref); ok && ref.HasPrefix(rootInput) {
			l.say(at, "object.get on %s hides misspelt fields: every field of the input is "+
				"always there", ref)
		}
	case "regex.match":
		p, ok := operands[0].Value.(ast.String)
		if !ok {
			l.say(at, "the pattern must be a literal, so that it can be checked")
		} else if !anchored(string(p)) {
			l.say(at, "the pattern %q is not anchored: write ^…$, or it matches inside longer "+
				"text", string(p))
		}
	case "net.cidr_contains":
		s, ok := operands[0].Value.(ast.String)
		if !ok {
			return
		}
		p, err := netip.ParsePrefix(string(s))
		switch {
		case err != nil:
			l.say(at, "%q is not a CIDR range", string(s))
		case p.Addr().Is4In6():
			l.say(at, "%q is IPv4 written as IPv6, which is taken for every IPv4 address",
				string(s))
		case p.Masked().String() != string(s):
			l.say(at, "write the range %q as %s", string(s), p.Masked())
		}
	}
}

// anchored reports whether every branch of a pattern matches from the beginning of the text to its
// end.
func anchored(pattern string) bool {
	re, err := syntax.Parse(pattern, syntax.Perl)
	first := func(subs []*syntax.Regexp) *syntax.Regexp { return subs[0] }
	last := func(subs []*syntax.Regexp) *syntax.Regexp { return subs[len(subs)-1] }
	return err == nil && edge(re, syntax.OpBeginText, first) && edge(re, syntax.OpEndText, last)
}

func edge(re *syntax.Regexp, is syntax.Op, outer func([]*syntax.Regexp) *syntax.Regexp) bool {
	switch re.Op {
	case is:
		return true
	case syntax.OpConcat, syntax.OpCapture:
		return edge(outer(re.Sub), is, outer)
	case syntax.OpAlternate:
		return !slices.ContainsFunc(re.Sub,
			func(sub *syntax.Regexp) bool { return !edge(sub, is, outer) })
	}
	return false
}
