package policy

import (
	"errors"
	"fmt"
	"maps"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// lintTests finds refusals that nobody asks: files of tests hold no rules.
func (r *revision) lintTests() error {
	var found []error
	for _, name := range slices.Sorted(maps.Keys(r.tests)) {
		for _, rule := range r.tests[name].Rules {
			if owned(name) && rule.Head.Ref()[0].Value.String() == "deny" {
				found = append(
					found,
					fmt.Errorf(
						"%s:%d: deny in a file of tests is never asked: move it to a file whose name does not end in _test.rego",
						rule.Location.File,
						rule.Location.Row,
					),
				)
			}
		}
	}
	return errors.Join(found...)
}

var (
	rootOurs   = ast.MustParseRef("data.caponier")
	rootCustom = ast.MustParseRef("data.site.custom")
)

// lintRefs finds what the compiler takes for undefined, and a rule for silently off: rules and
// numbers of the site that are not there. The compiler has resolved imports and variables.
func (r *revision) lintRefs(c *ast.Compiler) error {
	var found []error
	for _, name := range slices.Sorted(maps.Keys(c.Modules)) {
		if !owned(name) {
			continue
		}
		seen := map[string]bool{}
		ast.WalkRefs(c.Modules[name], func(ref ast.Ref) bool {
			ground := ref.GroundPrefix()
			wrong := ""
			switch {
			case ref.HasPrefix(rootOurs) && len(c.GetRules(ground)) == 0 && !r.isPackage(ground):
				wrong = fmt.Sprintf("there is no rule %s", ground)
			case ground.HasPrefix(rootCustom) && !r.holds(ground):
				wrong = fmt.Sprintf(
					"data.yaml has no %s, so whatever asks for it is undefined",
					strings.TrimPrefix(ground.String(), "data.site."),
				)
			}
			if loc := ref[0].Location; wrong != "" && !seen[wrong] {
				seen[wrong] = true
				at := name
				if loc != nil {
					at = fmt.Sprintf("%s:%d", name, loc.Row)
				}
				found = append(found, fmt.Errorf("%s: %s", at, wrong))
			}
			return false
		})
	}
	return errors.Join(found...)
}

// isPackage says that a reference is the package of a module, as its own declaration and imports
// are.
func (r *revision) isPackage(ref ast.Ref) bool {
	for _, m := range r.modules {
		if m.Package.Path.HasPrefix(ref) {
			return true
		}
	}
	return false
}

// holds says whether the data has something where a reference points.
func (r *revision) holds(ref ast.Ref) bool {
	var at any = r.data
	for _, t := range ref[1:] {
		key, ok := t.Value.(ast.String)
		m, isMap := at.(map[string]any)
		if !ok || !isMap { // an element of a list, or a key that is no text
			return at != nil
		}
		at = m[string(key)]
	}
	return at != nil
}

// anchored says that whatever a pattern matches begins and ends where the text does, in each of its
// branches.
func anchored(pattern string) bool {
	re, err := syntax.Parse(pattern, syntax.Perl)
	return err == nil &&
		edge(
			re,
			syntax.OpBeginText,
			func(subs []*syntax.Regexp) *syntax.Regexp { return subs[0] },
		) &&
		edge(
			re,
			syntax.OpEndText,
			func(subs []*syntax.Regexp) *syntax.Regexp { return subs[len(subs)-1] },
		)
}

func edge(re *syntax.Regexp, is syntax.Op, outer func([]*syntax.Regexp) *syntax.Regexp) bool {
	switch re.Op {
	case is:
		return true
	case syntax.OpConcat, syntax.OpCapture:
		return edge(outer(re.Sub), is, outer)
	case syntax.OpAlternate:
		return !slices.ContainsFunc(
			re.Sub,
			func(sub *syntax.Regexp) bool { return !edge(sub, is, outer) },
		)
	}
	return false
}
