package load

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// lintTests finds refusals in files of tests, which nothing asks.
func (c *Candidate) lintTests() error {
	var found []error
	for _, m := range c.owned(c.tests) {
		for _, rule := range m.Rules {
			if rule.Head.Ref()[0].Value.String() == "deny" {
				found = append(found, fmt.Errorf("%s:%d: deny in a file of tests is never "+
					"asked: move it to "+
					"a file whose name does not end in _test.rego", rule.Location.File,
					rule.Location.Row))
			}
		}
	}
	return errors.Join(found...)
}

// lintCompiled finds what only the compiler knows, which has resolved imports and variables:
// references to rules and numbers that are not there, and entries of deny of another type.
func (c *Candidate) lintCompiled() error {
	var found []error
	for _, m := range c.owned(c.compiler.Modules) {
		seen := map[string]bool{}
		file := m.Package.Location.File
		ast.WalkRefs(m, func(ref ast.Ref) bool {
			wrong := c.dangling(ref)
			if loc := ref[0].Location; wrong != "" && !seen[wrong] {
				seen[wrong] = true
				if loc == nil {
					loc = m.Package.Location
				}
				found = append(found, fmt.Errorf("%s:%d: %s", cmp.Or(loc.File, file), loc.Row,
					wrong))
			}
			return false
		})
		for _, rule := range m.Rules {
			if err := c.denyType(rule); err != nil {
				found = append(found, err)
			}
		}
	}
	return errors.Join(found...)
}

// denyType reports entries of deny that are not {"id": text, "msg": text}.
func (c *Candidate) denyType(rule *ast.Rule) error {
	if rule.Head.Ref()[0].Value.String() != "deny" || rule.Head.Key == nil {
		return nil
	}
	got := c.compiler.TypeEnv.GetByRef(rule.Ref().GroundPrefix())
	if got == nil || got.String() == "set[object<id: string, msg: string>]" {
		return nil
	}
	return fmt.Errorf(`%s: the entries of deny are %s, want objects <id: string, msg: string>: `+
		`make other `+
		`values text with sprintf`, rule.Location, strings.TrimPrefix(got.String(), "set"))
}

var (
	rootOurs   = ast.MustParseRef("data.caponier")
	rootCustom = ast.MustParseRef("data.site.custom")
)

func (c *Candidate) dangling(ref ast.Ref) string {
	ground := ref.GroundPrefix()
	switch {
	case ref.HasPrefix(rootOurs) && len(c.compiler.GetRules(ground)) == 0 && !c.isPackage(ground):
		return fmt.Sprintf("there is no rule %s", ground)
	case ground.HasPrefix(rootCustom) && !c.holds(ground):
		return fmt.Sprintf("data.yaml has no %s, so whatever asks for it is undefined",
			strings.TrimPrefix(ground.String(), "data.site."))
	}
	return ""
}

// isPackage reports whether a reference is a package, or above one.
func (c *Candidate) isPackage(ref ast.Ref) bool {
	for _, m := range c.modules {
		if m.Package.Path.HasPrefix(ref) {
			return true
		}
	}
	return false
}

// holds reports whether the data has something where a reference points.
func (c *Candidate) holds(ref ast.Ref) bool {
	var v any = c.data
	for _, t := range ref[1:] {
		m, isMap := v.(map[string]any)
		key, isText := t.Value.(ast.String)
		if !isText || !isMap { // an element of a list, or a key that is not text
			return v != nil
		}
		v = m[string(key)]
	}
	return v != nil
}
