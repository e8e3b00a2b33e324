package load

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

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
	if nameOf(rule) != "deny" || rule.Head.Key == nil {
		return nil
	}
	got := c.compiler.TypeEnv.GetByRef(rule.Ref().GroundPrefix())
	if got == nil || got.String() == "set[object<id: string, msg: string>]" {
		return nil
	}
	return fmt.Errorf("%s: the entries of deny are %s, want objects <id: string, msg: string>: "+
		"make other values text with sprintf", rule.Location,
		strings.TrimPrefix(got.String(), "set"))
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

// holds reports whether the data has something where a reference points, as far as its keys are
// text.
func (c *Candidate) holds(ref ast.Ref) bool {
	n := 1
	for n < len(ref) && textOf(ref[n]) != "" {
		n++
	}
	return c.value(ref[:n]) != nil
}
