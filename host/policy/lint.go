package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"gopkg.in/yaml.v3"
)

// checkData holds the site's data against its schema, then against core/lint.rego.
func (r *revision) checkData(ctx context.Context, c *ast.Compiler) error {
	schema := r.schemas.Get(ast.MustParseRef("schema.site"))
	rs, err := rego.New(rego.Query("json.match_schema(data.site, input)[1]"), rego.Store(r.store), rego.Input(schema), rego.StrictBuiltinErrors(true)).
		Eval(ctx)
	if err != nil {
		return fmt.Errorf("holding the site's data against its schema: %w", err)
	}
	var wrong []error
	if len(rs) != 1 {
		return errors.New("holding the site's data against its schema: no answer")
	}
	for _, w := range rs[0].Expressions[0].Value.([]any) {
		m, _ := w.(map[string]any)
		at, desc := fmt.Sprint(m["field"]), fmt.Sprint(m["desc"])
		if name, unknown := strings.CutPrefix(desc, "Additional property "); unknown {
			at += "." + strings.TrimSuffix(name, " is not allowed")
		}
		wrong = append(wrong, fmt.Errorf("%s: %s", r.place(at), desc))
	}
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	rs, err = rego.New(rego.Query("data.caponier.core.lint.problems"), rego.Compiler(c), rego.Store(r.store), rego.StrictBuiltinErrors(true)).
		Eval(ctx)
	if err == nil && len(rs) != 1 {
		err = errors.New("no answer")
	}
	if err != nil {
		return fmt.Errorf("looking for mistakes in the site's data: %w", err)
	}
	for _, p := range rs[0].Expressions[0].Value.([]any) {
		at, what, _ := strings.Cut(fmt.Sprint(p), ": ")
		wrong = append(wrong, fmt.Errorf("%s: %s", r.place(at), what))
	}
	return errors.Join(wrong...)
}

// place gives file and line of a key of the site's data, as far down as it can be found.
func (r *revision) place(field string) string {
	field = strings.TrimPrefix(strings.TrimPrefix(field, "(root)"), ".")
	best, where, depth := field, "site", -1
	for name, doc := range r.siteYAML {
		if at, line := locate(doc, field, 0, 0); at > depth {
			depth, where = at, fmt.Sprintf("%s:%d", name, line)
		}
	}
	if best == "" {
		return where
	}
	return where + ": " + best
}

// locate follows a path whose keys may hold its separators themselves. It returns how much of the
// path it found, and the line.
func locate(n *yaml.Node, rest string, depth, line int) (int, int) {
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		return locate(n.Content[0], rest, depth, 1)
	}
	best, at := depth, line
	if n.Kind != yaml.MappingNode {
		return best, at
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		if rest == key ||
			strings.HasPrefix(rest, key) && strings.ContainsAny(rest[len(key):len(key)+1], "./") {
			if d, l := locate(n.Content[i+1], strings.TrimLeft(rest[len(key):], "./"), depth+len(key)+1, n.Content[i].Line); d > best {
				best, at = d, l
			}
		}
	}
	return best, at
}

// lint looks through the site's rules for what compiles and yet does not do what its author means.
// Each finding has file and line.
func (r *revision) lint() error {
	var found []error
	used := map[string]bool{} // names of rules that something refers to
	for _, name := range slices.Sorted(maps.Keys(r.modules)) {
		if owned(name) {
			for _, rule := range withElse(r.modules[name].Rules) {
				note := func(x any) {
					ast.WalkVars(x, func(v ast.Var) bool {
						used[string(v)] = true
						return false
					})
					ast.WalkRefs(x, func(ref ast.Ref) bool {
						if last, ok := ref[len(ref)-1].Value.(ast.String); ok {
							used[string(last)] = true
						}
						return false
					})
				}
				note(rule.Body)
				for _, t := range []*ast.Term{rule.Head.Key, rule.Head.Value} {
					if t != nil {
						note(t)
					}
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.modules)) {
		if owned(name) {
			l := linter{module: r.modules[name], used: used}
			l.all()
			found = append(found, l.found...)
		}
	}
	return errors.Join(found...)
}

// withElse gives the else branches of rules as rules too.
func withElse(rules []*ast.Rule) (all []*ast.Rule) {
	for _, rule := range rules {
		for ; rule != nil; rule = rule.Else {
			all = append(all, rule)
		}
	}
	return all
}

type linter struct {
	module *ast.Module
	used   map[string]bool
	found  []error
}

func (l *linter) say(at *ast.Location, format string, a ...any) {
	l.found = append(l.found, fmt.Errorf("%s:%d: %s", at.File, at.Row, fmt.Sprintf(format, a...)))
}

var (
	rootInput = ast.MustParseRef("input")
	rootSite  = ast.MustParseRef("data.site")
	// What grows with the number of guests and people is looked up by key: a scan takes
	// milliseconds.
	inventories = []ast.Ref{
		ast.MustParseRef("data.site.principals"),
		ast.MustParseRef("data.site.protected"),
		ast.MustParseRef("data.site.tiers"),
		ast.MustParseRef("data.site.egress"),
	}
)

func (l *linter) all() {
	pkg := l.module.Package.Path.String()
	entry := pkg == "data.caponier.site.call" || pkg == "data.caponier.site.operation"
	for _, rule := range l.module.Rules {
		name := rule.Head.Ref()[0].Value.String()
		switch deny := name == "deny"; {
		case deny && !entry:
			l.say(
				rule.Location,
				"deny in %s is never asked: use package caponier.site.call or caponier.site.operation",
				strings.TrimPrefix(pkg, "data."),
			)
		case deny && rule.Head.RuleKind() != ast.MultiValue:
			l.say(
				rule.Location,
				`deny must be written "deny contains {"id": …, "msg": …} if …": in any other form it refuses nothing`,
			)
		case !deny && !l.used[name]:
			l.say(rule.Location, "nothing uses %s: is it a misspelt deny?", name)
		}
		ast.WalkBodies(rule, func(b ast.Body) bool {
			l.body(b)
			return false
		})
	}
	for _, imp := range l.module.Imports {
		if ref, ok := imp.Path.Value.(ast.Ref); ok &&
			(ref.HasPrefix(rootInput) || ref.HasPrefix(rootSite)) {
			l.say(
				imp.Location,
				"write %s out where it is used: what hides behind an import is not checked",
				ref,
			)
		}
	}
	l.refs()
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
			l.say(
				t.Location,
				"data.site is not typed here: put a METADATA block with \"schemas: - data.site: schema.site\" above the package, so that a misspelt key is an error",
			)
			typed = true // once is enough
		}
		for _, inv := range inventories {
			if ref.HasPrefix(inv) && !ref.IsGround() && loops(ref[len(inv):]) {
				l.say(t.Location, "%s is searched through: look it up by key", inv)
			}
		}
		return false
	})
}

// loops says that a reference goes through all keys: it has a wildcard.
func loops(ref ast.Ref) bool {
	return slices.ContainsFunc(ref, func(t *ast.Term) bool {
		v, isVar := t.Value.(ast.Var)
		return isVar && v.IsWildcard()
	})
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

// negated finds "not f(data.site.x)": where x is not there, OPA holds the whole expression for
// undefined, not for true. Comparisons may name such a value themselves, but not within another
// call.
func (l *linter) negated(e *ast.Expr) {
	comparison := e.Operator().String() == "equal"
	for _, t := range e.Operands() {
		if _, direct := t.Value.(ast.Ref); direct && comparison {
			continue
		}
		ast.WalkRefs(t, func(ref ast.Ref) bool {
			if ref.HasPrefix(rootInput) || ref.HasPrefix(ast.Ref{ast.DefaultRootDocument}) {
				l.say(
					e.Location,
					"if %s is undefined this does not hold, and the rule is silently off: name it without not in a rule of its own, and negate that rule",
					ref,
				)
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

func (l *linter) call(
	at *ast.Location,
	name string,
	operands []*ast.Term,
	numbers map[string]bool,
) {
	switch name {
	case "lt", "lte", "gt", "gte":
		for _, t := range operands {
			if ref, ok := t.Value.(ast.Ref); ok && ref.HasPrefix(rootInput) &&
				!numbers[t.String()] {
				l.say(
					at,
					"%s is compared without is_number(%s) in the same body: null is less than every number",
					t,
					t,
				)
			}
		}
	case "object.get":
		if ref, ok := operands[0].Value.(ast.Ref); ok && ref.HasPrefix(rootInput) {
			l.say(
				at,
				"object.get on %s hides misspelt fields: every field of the input is always there",
				ref,
			)
		}
	case "regex.match":
		p, ok := operands[0].Value.(ast.String)
		if !ok {
			l.say(at, "the pattern must be a literal, so that it can be checked")
		} else if !anchored(string(p)) {
			l.say(at, "the pattern %q is not anchored: write ^…$, or it matches inside longer text", string(p))
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
			l.say(
				at,
				"%q is IPv4 written as IPv6, which is taken for every IPv4 address",
				string(s),
			)
		case p.Masked().String() != string(s):
			l.say(at, "write the range %q as %s", string(s), p.Masked())
		}
	}
}

// testSite runs the site's own tests. Rules that have none, or fail them, are not taken.
func (r *revision) testSite(ctx context.Context) error {
	rules := 0
	for name, m := range r.modules {
		if strings.HasPrefix(name, "site/") {
			rules += len(m.Rules)
		}
	}
	tests := map[string]*ast.Module{}
	for name, m := range r.tests {
		if strings.HasPrefix(name, "site/") {
			tests[name] = m
		}
	}
	results, err := r.runTests(ctx, tests, nil)
	if err != nil {
		return err
	}
	var wrong []error
	for _, t := range results {
		if !t.Pass() {
			wrong = append(
				wrong,
				fmt.Errorf(
					"%s: test %s.%s did not pass",
					t.Location,
					strings.TrimPrefix(t.Package, "data."),
					t.Name,
				),
			)
		}
	}
	if rules > 0 && len(results) == 0 {
		wrong = append(
			wrong,
			errors.New(
				"the site has rules but no tests: write test_… rules beside them in files that end in _test.rego",
			),
		)
	}
	return errors.Join(wrong...)
}
