package load

import (
	"context"
	"slices"
	"strings"

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

// Test runs every test of the folder's site, and measures what they covered. A test that fails is
// in the report, not an error. The tests of core ran when this program was made. Only the questions
// of tests are made of the inventory: names in the policy are not held against it.
func Test(ctx context.Context, dir string, inv Inventory) (TestReport, error) {
	c, err := Untested(ctx, dir)
	if err != nil {
		return TestReport{}, err
	}
	c.inventory = inv
	covered := &covering{Cover: cover.New(), held: map[string]bool{}}
	results, err := c.runTests(ctx, c.tests, covered)
	if err != nil {
		return TestReport{}, err
	}
	rep := TestReport{Tests: []TestResult{}}
	for _, t := range results {
		if !t.Pass() {
			rep.Failed++
		}
		rep.Tests = append(rep.Tests, TestResult{Name: testName(t), Where: t.Location.String(),
			Passed: t.Pass(), Output: output(t), Took: t.Duration})
	}
	rep.Coverage, rep.Rules = covered.of(c.owned(c.modules))
	return rep, nil
}
