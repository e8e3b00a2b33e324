package load

import (
	"context"
	"errors"
	"net/netip"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// lint finds what compiles in the site's rules and yet does not do what its author means. Each
// finding has file and line.
func (c *Candidate) lint(context.Context) error {
	var found []error
	used := c.used()
	for _, m := range c.owned(c.modules) {
		l := linter{Candidate: c, module: m, used: used, asked: asksOmitted(m)}
		l.pass()
		found = append(found, l.found...)
	}
	for _, m := range c.owned(c.tests) {
		l := linter{module: m}
		for _, rule := range m.Rules {
			if nameOf(rule) == "deny" {
				l.say(rule.Location, "deny in a file of tests is never asked: move it to a file "+
					"whose name does not end in _test.rego")
			}
		}
		found = append(found, l.found...)
	}
	return errors.Join(found...)
}

// used returns the names of the site's rules that something refers to.
func (c *Candidate) used() map[string]bool {
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
	return used
}

func (l *linter) pass() {
	for _, a := range l.module.Annotations {
		for _, s := range a.Schemas {
			l.typed = l.typed || s.Path.Equal(rootSite)
		}
	}
	for _, imp := range l.module.Imports {
		ref, ok := imp.Path.Value.(ast.Ref)
		if ok && (ref.HasPrefix(rootInput) || ref.HasPrefix(rootSite)) {
			l.say(imp.Location, "write %s out where it is used: what an import hides is not "+
				"checked", ref)
		}
	}
	leave := func(x any) {
		if _, ok := x.(ast.Body); ok {
			l.bodies = l.bodies[:len(l.bodies)-1]
		}
	}
	for _, rule := range l.module.Rules {
		l.head(rule)
		l.paths = map[ast.Var]string{}
		l.bind(rule)
		ast.NewBeforeAfterVisitor(l.enter, leave).Walk(rule)
	}
}

func (l *linter) enter(x any) bool {
	if c, ok := callOf(x); ok {
		for _, check := range checks[c.name] {
			check(l, c)
		}
		if c.negated {
			l.negated(c)
		}
	}
	switch x := x.(type) {
	case ast.Body:
		l.bodies = append(l.bodies, x)
	case *ast.SomeDecl:
		l.some(x)
	case *ast.Term:
		if ref, ok := x.Value.(ast.Ref); ok {
			l.ref(x.Location, ref)
		}
	}
	return false
}

type checkList = []func(*linter, call)

// checks are what each function needs of the terms that it is called with.
var checks = func() map[string]checkList {
	all := map[string]checkList{
		"equal": {(*linter).equality}, "eq": {(*linter).equality}, "neq": {(*linter).equality},
		"internal.member_2": {(*linter).membership},
		"object.get":        {(*linter).lookup},
		"regex.match":       {(*linter).pattern, (*linter).text},
		"net.cidr_contains": {(*linter).cidr},
	}
	for _, name := range []string{"lt", "lte", "gt", "gte"} {
		all[name] = checkList{(*linter).order}
	}
	for _, name := range []string{"contains", "startswith", "endswith", "glob.match", "indexof",
		"lower", "upper", "split", "substring", "replace", "trim", "trim_space", "trim_prefix",
		"trim_suffix", "strings.any_prefix_match", "strings.any_suffix_match", "regex.find_n",
		"regex.split"} {
		all[name] = checkList{(*linter).text}
	}
	return all
}()

// head finds rules that nothing asks, and entries of deny that the host cannot read.
func (l *linter) head(rule *ast.Rule) {
	switch deny := nameOf(rule) == "deny"; {
	case deny && l.entry() == "":
		l.say(rule.Location, "deny in %s is never asked: use package caponier.site.call, "+
			".operation, .plan or .result",
			strings.TrimPrefix(l.module.Package.Path.String(), "data."))
	case deny && rule.Head.RuleKind() != ast.MultiValue:
		l.say(rule.Location, `deny must be written "deny contains {"id": …, "msg": …} if …": in `+
			`any other form it refuses nothing`)
	case deny:
		l.reason(rule)
	case !l.used[nameOf(rule)]:
		l.say(rule.Location, "nothing uses %s: is it a misspelt deny?", nameOf(rule))
	}
}

// reason finds entries of deny that the host cannot read, which would refuse every question. The
// compiler knows the type of a variable; see lintCompiled.
func (l *linter) reason(rule *ast.Rule) {
	const want = `an entry of deny is {"id": "site.NAME", "msg": "text"}`
	doc, ok := rule.Head.Key.Value.(ast.Object)
	if !ok {
		if _, isVar := rule.Head.Key.Value.(ast.Var); !isVar {
			l.say(rule.Location, "%s is no object: %s", rule.Head.Key, want)
		}
		return
	}
	doc.Foreach(func(k, v *ast.Term) {
		if name := textOf(k); name != "id" && name != "msg" {
			l.say(rule.Location, "%s does not belong here: %s", k, want)
		}
		switch v.Value.(type) {
		case ast.Number, ast.Boolean, ast.Null, *ast.Array, ast.Object, ast.Set:
			l.say(rule.Location, "%s is %s, not text: %s", textOf(k), v, want)
		}
	})
	for _, name := range []string{"id", "msg"} {
		if doc.Get(ast.StringTerm(name)) == nil {
			l.say(rule.Location, "%s is missing: %s", name, want)
		}
	}
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

func (l *linter) ref(at *ast.Location, ref ast.Ref) {
	switch {
	case ref.Equal(rootInput):
		l.say(at, "input as a whole hides misspelt fields: name the field")
	case ref.HasPrefix(rootInput):
		l.field(at, textOf(ref[1]))
	case ref.HasPrefix(rootSite):
		if !l.typed {
			l.say(at, `data.site is not typed here: put a METADATA block with "schemas: - `+
				`data.site: schema.site" above the package, so that a misspelt key is an error`)
			l.typed = true // once is enough
		}
		l.siteKeys(at, ref)
	}
	for _, inv := range inventories {
		if ref.HasPrefix(inv) && !ref.IsGround() && slices.ContainsFunc(ref[len(inv):], wildcard) {
			l.say(at, "%s is searched through: look it up by key", inv)
		}
	}
}

func wildcard(t *ast.Term) bool {
	v, isVar := t.Value.(ast.Var)
	return isVar && v.IsWildcard()
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

// negated finds "not f(data.site.x)": where x is missing, OPA takes the whole expression for
// undefined, not for true. A comparison may name such a value itself, but not within another call.
func (l *linter) negated(c call) {
	for _, t := range c.operands {
		if _, direct := t.Value.(ast.Ref); direct && c.name == "equal" {
			continue
		}
		ast.WalkRefs(t, func(ref ast.Ref) bool {
			if ref.HasPrefix(rootInput) || ref.HasPrefix(ast.Ref{ast.DefaultRootDocument}) {
				l.say(c.at, "if %s is undefined this does not hold, and the rule is silently off: "+
					"name it without not in a rule of its own, and negate that rule", ref)
			}
			return false
		})
	}
}

// order finds comparisons of fields that can be null.
func (l *linter) order(c call) {
	number := func(t *ast.Term) bool {
		return len(l.bodies) > 0 && slices.ContainsFunc(l.bodies[len(l.bodies)-1],
			func(e *ast.Expr) bool {
				is, ok := callOf(e)
				return ok && !is.negated && is.name == "is_number" && is.operands[0].Equal(t)
			})
	}
	for _, t := range c.operands {
		if ref, ok := t.Value.(ast.Ref); ok && ref.HasPrefix(rootInput) && !number(t) {
			l.say(c.at, "%s is compared without is_number(%s) in the same body: null is less than "+
				"every number", t, t)
		}
	}
}

func (l *linter) lookup(c call) {
	if ref, ok := c.operands[0].Value.(ast.Ref); ok && ref.HasPrefix(rootInput) {
		l.say(c.at, "object.get on %s hides misspelt fields: every field of the input is always "+
			"there", ref)
	}
}

func (l *linter) pattern(c call) {
	if p, ok := c.operands[0].Value.(ast.String); !ok {
		l.say(c.at, "the pattern must be a literal, so that it can be checked")
	} else if !anchored(string(p)) {
		l.say(c.at, "the pattern %q is not anchored: write ^…$, or it matches inside longer text",
			string(p))
	}
}

func (l *linter) cidr(c call) {
	s, ok := c.operands[0].Value.(ast.String)
	if !ok {
		return
	}
	p, err := netip.ParsePrefix(string(s))
	switch {
	case err != nil:
		l.say(c.at, "%q is not a CIDR range", string(s))
	case p.Addr().Is4In6():
		l.say(c.at, "%q is IPv4 written as IPv6, which is taken for every IPv4 address", string(s))
	case p.Masked().String() != string(s):
		l.say(c.at, "write the range %q as %s", string(s), p.Masked())
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
