package load

import (
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/open-policy-agent/opa/v1/ast"
)

// values finds what rules compare with the fields of the input that the fields can never be.
func (l *linter) values() {
	for _, rule := range l.module.Rules {
		v := values{linter: l, paths: map[ast.Var]string{}}
		v.bind(rule)
		ast.WalkExprs(rule, func(e *ast.Expr) bool {
			if e.IsCall() {
				v.compare(e.Location, e.Operator().String(), e.Operands(), e.Negated)
			}
			return false
		})
		ast.WalkTerms(rule, func(t *ast.Term) bool {
			switch x := t.Value.(type) {
			case ast.Call:
				v.compare(t.Location, x[0].String(), x[1:], false)
			case ast.Ref:
				v.ref(t.Location, x)
			}
			return false
		})
	}
}

// values follows the fields of the input through the variables of one rule.
type values struct {
	*linter
	paths map[ast.Var]string
}

// bind notes which variables stand for a field of the input or for an element of one.
func (v *values) bind(rule *ast.Rule) {
	element := func(t *ast.Term, of string) {
		if x, ok := t.Value.(ast.Var); ok && of != "" {
			v.paths[x] = of + "[]"
		}
	}
	ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case *ast.SomeDecl:
			for _, s := range x.Symbols {
				if c, ok := s.Value.(ast.Call); ok {
					element(c[len(c)-2], v.path(c[len(c)-1]))
				}
			}
		case *ast.Every:
			element(x.Value, v.path(x.Domain))
		case *ast.Expr:
			if x.IsAssignment() || x.IsEquality() {
				if name, ok := x.Operand(0).Value.(ast.Var); ok {
					if p := v.path(x.Operand(1)); p != "" {
						v.paths[name] = p
					}
				}
			}
		}
		return false
	}).Walk(rule)
}

// path returns the field of the input that a term stands for, without "input.", or "".
func (v *values) path(t *ast.Term) string {
	if x, ok := t.Value.(ast.Var); ok {
		return v.paths[x]
	}
	ref, ok := t.Value.(ast.Ref)
	if !ok {
		return ""
	}
	head, _ := ref[0].Value.(ast.Var)
	path, known := v.paths[head]
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

func (v *values) compare(at *ast.Location, op string, operands []*ast.Term, negated bool) {
	switch op {
	case "equal", "eq", "assign", "neq":
		for i, t := range operands[:2] {
			if p := v.path(t); p != "" && op != "assign" {
				v.literal(at, p, operands[1-i])
				_, text := operands[1-i].Value.(ast.String)
				v.omitted(at, p, text && (op == "neq" || negated))
			}
		}
	case "internal.member_2":
		if p := v.path(operands[0]); p != "" {
			v.literals(at, p, operands[1])
			v.omitted(at, p, negated)
		}
		if p := v.path(operands[1]); p != "" {
			v.literal(at, p+"[]", operands[0])
		}
	case "contains", "startswith", "endswith", "regex.match", "glob.match", "indexof", "lower",
		"upper",
		"split", "substring", "replace", "trim", "trim_space", "trim_prefix", "trim_suffix",
		"sprintf",
		"strings.any_prefix_match", "strings.any_suffix_match", "regex.find_n", "regex.split":
		for _, t := range operands {
			v.omitted(at, v.path(t), op != "sprintf")
		}
	}
}

// literals holds each literal of a list, set or object against a field.
func (v *values) literals(at *ast.Location, path string, all *ast.Term) {
	if name, ok := all.Value.(ast.Var); ok { // a rule of this module that is a constant
		for _, rule := range v.module.Rules {
			if rule.Head.Name == name && rule.Head.Value != nil && len(rule.Head.Args) == 0 {
				all = rule.Head.Value
			}
		}
	}
	each := func(t *ast.Term) { v.literal(at, path, t) }
	switch x := all.Value.(type) {
	case *ast.Array:
		x.Foreach(each)
	case ast.Set:
		x.Foreach(each)
	case ast.Object:
		x.Foreach(func(_, t *ast.Term) { each(t) })
	}
}

// literal reports a literal that a field can never be.
func (v *values) literal(at *ast.Location, path string, t *ast.Term) {
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
		switch kinds, known := v.argument(name); {
		case known && len(kinds) == 0:
			v.say(at, "input.%s is never there: no tool in the lock has an argument %s", path, name)
		case known && !slices.Contains(kinds, kind):
			v.say(at, "input.%s is never %s: the tools in the lock declare it as %s", path, t,
				strings.Join(kinds, " or "))
		}
		return
	}
	if d := domainOf(path); d != nil {
		if why := d(v.Candidate, t); why != "" {
			v.say(at, "input.%s is never %s: %s", path, t, why)
		}
	} else if want := v.typeOf(path); want != "" && want != kind {
		v.say(at, "input.%s is never %s: its type is %s", path, t, want)
	}
}

// domainOf returns the domain of the longest end of a path that has one.
func domainOf(path string) domain {
	for rest, more := path, true; more; _, rest, more = strings.Cut(rest, ".") {
		if d := domains[rest]; d != nil {
			return d
		}
	}
	return nil
}

// argument returns the scalar types that the tools of the lock declare for an argument.
func (v *values) argument(name string) (kinds []string, known bool) {
	for _, t := range v.inventory.Tools {
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
	return slices.Compact(kinds), v.inventory.Tools != nil
}

// typeOf returns the scalar type of a field by the schema of the input, or "".
func (v *values) typeOf(path string) string {
	schema, _ := v.schemas.Get(ast.SchemaRootRef).(map[string]any)
	for _, part := range strings.Split(strings.ReplaceAll(path, "[]", ".[]"), ".") {
		if either, ok := schema["anyOf"].([]any); ok {
			schema, _ = either[0].(map[string]any)
		}
		if part == "[]" {
			schema, _ = schema["items"].(map[string]any)
		} else {
			props, _ := schema["properties"].(map[string]any)
			schema, _ = props[part].(map[string]any)
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
func (v *values) omitted(at *ast.Location, path string, test bool) {
	name, ok := strings.CutPrefix(path, "args.scalars.")
	kinds, known := v.argument(name)
	if !ok || !test || known && !slices.Contains(kinds, "string") {
		return
	}
	asked := false
	ast.WalkTerms(v.module, func(t *ast.Term) bool {
		if c, ok := t.Value.(ast.Call); ok && len(c) > 1 {
			asked = asked || asksOmitted(c[0].String(), c[1:], name)
		}
		return asked
	})
	ast.WalkExprs(v.module, func(e *ast.Expr) bool {
		if e.IsCall() {
			asked = asked || asksOmitted(e.Operator().String(), e.Operands(), name)
		}
		return asked
	})
	if !asked {
		v.say(at, "text of more than 256 bytes is not in input.%s, and this rule is off then: "+
			"add a rule "+
			"that also refuses if %q in input.args.omitted", path, name)
	}
}

func asksOmitted(op string, operands []*ast.Term, name string) bool {
	omitted := func(t *ast.Term) bool { return t.String() == "input.args.omitted" }
	return op == "internal.member_2" && textOf(operands[0]) == name && omitted(operands[1]) ||
		op == "count" && omitted(operands[0])
}

// ref reports fields that a question of this package does not have, and keys of the site's data
// that are not text.
func (v *values) ref(at *ast.Location, ref ast.Ref) {
	if entry := v.entry(); entry != "" && ref.HasPrefix(rootInput) && len(ref) > 1 {
		field := textOf(ref[1])
		if !slices.Contains(value.Fields(input.Types[entry]), field) && v.typed(field) {
			this, other := "a call", "operation"
			if entry == "operation" {
				this, other = "an operation", "call"
			}
			v.say(at, "input.%s is not part of %s, so that this never holds: rules about it "+
				"belong in "+
				"package caponier.site.%s", field, this, other)
		}
	}
	if !ref.HasPrefix(rootSite) {
		return
	}
	for i, t := range ref[1:] {
		kind, path := "", v.path(t)
		if _, number := t.Value.(ast.Number); number || v.typeOf(path) == "integer" {
			kind = "a number"
		} else if name, ok := strings.CutPrefix(path, "args.scalars."); ok {
			if kinds, known := v.argument(name); !known || slices.Contains(kinds, "integer") {
				kind = "perhaps a number"
			}
		} else if _, b := t.Value.(ast.Boolean); b || v.typeOf(path) == "boolean" {
			kind = "true or false"
		}
		if above := v.value(ref[:i+1]); kind != "" && !isList(above) {
			v.say(at, `the key %s is %s, and keys of data.yaml are text: look up sprintf("%%v", `+
				`[%s])`, t,
				kind, t)
		}
	}
}

func isList(v any) bool {
	_, ok := v.([]any)
	return ok
}

// value returns what the data holds where a reference of text keys points.
func (c *Candidate) value(ref ast.Ref) any {
	var path []string
	for _, t := range ref[1:] {
		path = append(path, textOf(t))
	}
	return at(c.data, path...)
}

// typed reports whether a field is in the schema of the input at all.
func (c *Candidate) typed(field string) bool {
	schema, _ := c.schemas.Get(ast.SchemaRootRef).(map[string]any)
	_, ok := at(schema, "properties").(map[string]any)[field]
	return ok
}
