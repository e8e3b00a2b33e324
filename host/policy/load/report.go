package load

import (
	"context"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
)

// Report is what [Check] found in a folder that is fit to decide.
type Report struct {
	Revision string   `json:"revision"`
	Rules    int      `json:"rules"` // of the site
	Tests    int      `json:"tests"` // of the site; all passed
	Warnings []string `json:"warnings"`
}

// Check builds the policy of a folder as the host would. Its error lists what must change, with
// file and line.
func Check(ctx context.Context, dir string, inv Inventory) (Report, error) {
	c, err := FromFolder(ctx, dir, inv)
	if err != nil {
		return Report{}, err
	}
	rep := Report{Revision: c.Rules.Revision,
		Warnings: slices.Concat([]string{}, c.Warnings, c.Idle)}
	for name, m := range c.modules {
		if owned(name) {
			rep.Rules += len(m.Rules)
		}
	}
	for name, m := range c.tests {
		for _, rule := range m.Rules {
			if owned(name) && strings.HasPrefix(string(rule.Head.Name), "test_") {
				rep.Tests++
			}
		}
	}
	return rep, nil
}

// Test runs every test of the core and of the folder's site, and measures what they covered. A
// test that fails is in the report, not an error.
func Test(ctx context.Context, dir string) (TestReport, error) {
	c, err := FromFolder(ctx, dir, Inventory{})
	if err != nil {
		return TestReport{}, err
	}
	if err := c.withCoreTests(); err != nil {
		return TestReport{}, err
	}
	covered := cover.New()
	results, err := c.runTests(ctx, c.tests, covered)
	if err != nil {
		return TestReport{}, err
	}
	var rep TestReport
	for _, t := range results {
		res := TestResult{Name: testName(t), Where: t.Location.String(), Passed: t.Pass(),
			Output: string(t.Output), Took: t.Duration}
		if t.Error != nil {
			res.Output += t.Error.Error()
		}
		if !res.Passed {
			rep.Failed++
		}
		rep.Tests = append(rep.Tests, res)
	}
	core, site := map[string]*ast.Module{}, map[string]*ast.Module{}
	for name, m := range c.modules {
		if owned(name) {
			site[name] = m
		} else {
			core[name] = m
		}
	}
	rep.CoreCoverage, rep.CoreNotCovered = coverage(covered, core)
	rep.SiteCoverage, rep.NotCovered = coverage(covered, site)
	return rep, nil
}
