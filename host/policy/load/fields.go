package load

import (
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/open-policy-agent/opa/v1/ast"
)

// bind notes which variables of a rule stand for a field of the input or for an element of one.
func (l *linter) bind(rule *ast.Rule) {
	element := func(t *ast.Term, of string) {
		if x, ok := t.Value.(ast.Var); ok && of != "" {
			l.paths[x] = of + "[]"
		}
	}
	ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.SomeDecl:
			for _, s := range x.Symbols {
				if c, ok := s.Value.(ast.Call); ok {
					element(c[len(c)-2], l.path(c[len(c)-1]))
				}
			}
		case *ast.Every:
			element(x.Value, l.path(x.Domain))
		case *ast.Expr:
			if x.IsAssignment() || x.IsEquality() {
				name, ok := x.Operand(0).Value.(ast.Var)
				if p := l.path(x.Operand(1)); ok && p != "" {
					l.paths[name] = p
				}
			}
		}
		return false
	}).Walk(rule)
}

// path returns the field of the input that a term stands for, without "input.", or "".
func (l *linter) path(t *ast.Term) string {
	if x, ok := t.Value.(ast.Var); ok {
		return l.paths[x]
	}
	ref, ok := t.Value.(ast.Ref)
	if !ok {
		return ""
	}
	head, _ := ref[0].Value.(ast.Var)
	path, known := l.paths[head]
	if !known && !ref[0].Equal(ast.InputRootDocument) {
		return ""
	}
	for _, x := range ref[1:] {
		if s, ok := x.Value.(ast.String); ok {
			path += "." + string(s)
		} else {
			path += "[]"
		}
	}
	return strings.TrimPrefix(path, ".")
}

// equality finds comparisons with what a field can never be.
func (l *linter) equality(c call) {
	for i, t := range c.operands[:2] {
		other := c.operands[1-i]
		if p := l.path(t); p != "" {
			l.literal(c.at, p, other)
			if _, text := other.Value.(ast.String); text && (c.name == "neq" || c.negated) {
				l.omitted(c.at, p)
			}
		}
	}
}

// membership is equality for "x in y".
func (l *linter) membership(c call) {
	item, all := c.operands[0], c.operands[1]
	if p := l.path(item); p != "" {
		for _, t := range l.members(all) {
			l.literal(c.at, p, t)
		}
		if c.negated {
			l.omitted(c.at, p)
		}
	}
	if p := l.path(all); p != "" {
		l.literal(c.at, p+"[]", item)
	}
}

// members returns the members of a list, set or object, also of a rule that is a constant.
func (l *linter) members(all *ast.Term) (members []*ast.Term) {
	if name, ok := all.Value.(ast.Var); ok {
		for _, rule := range l.module.Rules {
			if rule.Head.Name == name && rule.Head.Value != nil && len(rule.Head.Args) == 0 {
				all = rule.Head.Value
			}
		}
	}
	each := func(t *ast.Term) { members = append(members, t) }
	switch x := all.Value.(type) {
	case *ast.Array:
		x.Foreach(each)
	case ast.Set:
		x.Foreach(each)
	case ast.Object:
		x.Foreach(func(_, t *ast.Term) { each(t) })
	}
	return members
}

// text finds functions that read text which may be omitted.
func (l *linter) text(c call) {
	for _, t := range c.operands {
		l.omitted(c.at, l.path(t))
	}
}

// literal reports a literal that a field can never be.
func (l *linter) literal(at *ast.Location, path string, t *ast.Term) {
	kind := ""
	switch t.Value.(type) {
	case ast.String:
		kind = "string"
	case ast.Number:
		kind = "integer"
	case ast.Boolean:
		kind = "boolean"
	default:
		return
	}
	if name, ok := strings.CutPrefix(path, "args.scalars."); ok {
		switch kinds, known := l.argument(name); {
		case known && len(kinds) == 0:
			l.say(at, "input.%s is never there: no tool in the lock has an argument %s", path, name)
		case known && !slices.Contains(kinds, kind):
			l.say(at, "input.%s is never %s: the tools in the lock declare it as %s", path, t,
				strings.Join(kinds, " or "))
		}
		return
	}
	if d := domainOf(path); d != nil {
		if why := d(l.Candidate, t); why != "" {
			l.say(at, "input.%s is never %s: %s", path, t, why)
		}
	} else if want := l.typeOf(path); want != "" && want != kind {
		l.say(at, "input.%s is never %s: its type is %s", path, t, want)
	}
}

// argument returns the scalar types that the tools of the lock declare for an argument.
func (c *Candidate) argument(name string) (kinds []string, known bool) {
	for _, t := range c.inventory.Tools {
		for _, p := range t.Params {
			if p.Name == name && p.Type == "" { // of several types
				return nil, false
			}
			if p.Name == name {
				kinds = append(kinds, p.Type)
			}
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds), c.inventory.Tools != nil
}

// typeOf returns the scalar type of a field by the schema of the input, or "".
func (c *Candidate) typeOf(path string) string {
	schema, _ := c.schemas.Get(ast.SchemaRootRef).(map[string]any)
	for _, part := range strings.Split(strings.ReplaceAll(path, "[]", ".[]"), ".") {
		if either, ok := schema["anyOf"].([]any); ok {
			schema, _ = either[0].(map[string]any)
		}
		if part == "[]" {
			schema, _ = schema["items"].(map[string]any)
		} else {
			schema, _ = at(schema, "properties", part).(map[string]any)
		}
	}
	switch kind, _ := schema["type"].(string); kind {
	case "string", "integer", "boolean":
		return kind
	}
	return ""
}

// omitted reports a test of an argument's text in a module that does not ask whether the text is
// there: an argument of more than 256 bytes is not.
func (l *linter) omitted(at *ast.Location, path string) {
	name, ok := strings.CutPrefix(path, "args.scalars.")
	kinds, known := l.argument(name)
	if !ok || l.asked[name] || l.asked["*"] || known && !slices.Contains(kinds, "string") {
		return
	}
	l.say(at, "text of more than 256 bytes is not in input.%s, and this rule is off then: add a "+
		"rule that also refuses if %q in input.args.omitted", path, name)
}

// asksOmitted returns the arguments of which a module asks whether they are omitted.
func asksOmitted(m *ast.Module) map[string]bool {
	asked := map[string]bool{}
	list := ast.MustParseTerm("input.args.omitted")
	ast.NewGenericVisitor(func(x any) bool {
		switch c, _ := callOf(x); {
		case c.name == "internal.member_2" && c.operands[1].Equal(list):
			asked[textOf(c.operands[0])] = true
		case c.name == "count" && c.operands[0].Equal(list):
			asked["*"] = true
		}
		return false
	}).Walk(m)
	return asked
}

// field reports a field that a question of this package does not have.
func (l *linter) field(where *ast.Location, name string) {
	this, other := "a call", "operation"
	switch l.entry() {
	case "":
		return
	case "result":
		this = "a result"
	case "operation":
		this, other = "an operation", "call"
	}
	schema, _ := l.schemas.Get(ast.SchemaRootRef).(map[string]any)
	misplaced := !slices.Contains(value.Fields(input.Types[l.entry()]), name)
	if misplaced && at(schema, "properties", name) != nil {
		l.say(where, "input.%s is not part of %s, so that this never holds: rules about it belong "+
			"in package caponier.site.%s", name, this, other)
	}
}

// siteKeys reports keys into the site's data that are not text.
func (l *linter) siteKeys(at *ast.Location, ref ast.Ref) {
	for i, t := range ref[1:] {
		kind, path := "", l.path(t)
		if _, number := t.Value.(ast.Number); number || l.typeOf(path) == "integer" {
			kind = "a number"
		} else if name, ok := strings.CutPrefix(path, "args.scalars."); ok {
			if kinds, known := l.argument(name); !known || slices.Contains(kinds, "integer") {
				kind = "perhaps a number"
			}
		} else if _, b := t.Value.(ast.Boolean); b || l.typeOf(path) == "boolean" {
			kind = "true or false"
		}
		if _, isList := l.value(ref[:i+1]).([]any); kind != "" && !isList {
			l.say(at, `the key %s is %s, and keys of data.yaml are text: look up sprintf("%%v", `+
				`[%s])`, t, kind, t)
		}
	}
}

// value returns what the data holds where a reference of text keys points.
func (c *Candidate) value(ref ast.Ref) any {
	var path []string
	for _, t := range ref[1:] {
		path = append(path, textOf(t))
	}
	return at(c.data, path...)
}
