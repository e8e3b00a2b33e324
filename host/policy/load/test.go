package load

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/tester"
)

// TestReport is what the tests of core and site said. Coverage is in percent of lines.
type TestReport struct {
	Tests          []TestResult `json:"tests"`
	Failed         int          `json:"failed"`
	CoreCoverage   float64      `json:"core_coverage"`
	SiteCoverage   float64      `json:"site_coverage"` // 100 when the site has no rules
	NotCovered     []string     `json:"not_covered"`   // of the site: file:line, file:line-line
	CoreNotCovered []string     `json:"core_not_covered"`
}

// TestResult is one test. Where is file:line.
type TestResult struct {
	Name   string        `json:"name"`
	Where  string        `json:"where"`
	Passed bool          `json:"passed"`
	Output string        `json:"output,omitempty"`
	Took   time.Duration `json:"took_ns"`
}

// coverage counts the lines of these modules alone; the tracer has seen those of the tests as well.
func coverage(c *cover.Cover, modules map[string]*ast.Module) (percent float64, missed []string) {
	var yes, no int
	all := c.Report(modules)
	for name := range modules {
		f := all.Files[name]
		yes, no = yes+f.CoveredLines, no+f.NotCoveredLines
		for _, r := range f.NotCovered {
			place := fmt.Sprintf("%s:%d", name, r.Start.Row)
			if r.End.Row > r.Start.Row {
				place += fmt.Sprintf("-%d", r.End.Row)
			}
			missed = append(missed, place)
		}
	}
	slices.Sort(missed)
	if yes+no == 0 {
		return 100, nil
	}
	return 100 * float64(yes) / float64(yes+no), missed
}

// testSite runs the site's own tests. Rules without tests, and tests that fail, refuse a site.
func (c *Candidate) testSite(ctx context.Context) error {
	rules, tests := 0, map[string]*ast.Module{}
	for name, m := range c.modules {
		if owned(name) {
			rules += len(m.Rules)
		}
	}
	for name, m := range c.tests {
		if owned(name) {
			tests[name] = m
		}
	}
	if len(tests) > 0 { // which may use the fixtures of core's
		if err := c.withCoreTests(); err != nil {
			return err
		}
	}
	results, err := c.runTests(ctx, tests, nil)
	var wrong []error
	for _, t := range results {
		if !t.Pass() {
			wrong = append(wrong, fmt.Errorf("%s: test %s did not pass", t.Location, testName(t)))
		}
	}
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case rules > 0 && len(results) == 0:
		return errors.New("the site has rules but no tests: write test_… rules beside them in " +
			"files that end in _test.rego")
	}
	return errors.Join(wrong...)
}

// withCoreTests adds core's tests to the site's.
func (c *Candidate) withCoreTests() error {
	for name, data := range c.coreTests {
		m, err := c.parseModule(name, data)
		if err != nil {
			return err
		}
		c.add(name, m)
	}
	return nil
}

func testName(t *tester.Result) string {
	return strings.TrimPrefix(t.Package, "data.") + "." + t.Name
}

// runTests compiles everything with the given tests and runs them, with the evaluator that decides
// and on the site's data. Tables are derived anew in each test, since tests replace the data. The
// tracer may be nil.
func (c *Candidate) runTests(ctx context.Context, tests map[string]*ast.Module,
	covered *cover.Cover) ([]*tester.Result, error) {
	if len(tests) == 0 {
		return nil, nil
	}
	store, err := c.store(nil)
	if err != nil {
		return nil, err
	}
	txn, err := store.NewTransaction(ctx)
	if err != nil {
		return nil, err
	}
	defer store.Abort(ctx, txn)
	// All tests are compiled: those of the core bring the fixtures. The runner changes their names.
	all := maps.Clone(c.modules)
	for name, m := range c.tests {
		all[name] = m.Copy()
	}
	runner := tester.NewRunner().SetCompiler(c.newCompiler().WithRewriteTestRules(true)).
		SetStore(store).SetModules(all).RaiseBuiltinErrors(true).
		SetTimeout(time.Minute)
	if covered != nil {
		runner = runner.SetCoverageQueryTracer(covered)
	}
	var names []string
	for _, m := range tests {
		names = append(names, "^"+strings.ReplaceAll(m.Package.Path.String(), ".", `\.`)+`\.test_`)
	}
	ch, err := runner.Filter(strings.Join(names, "|")).RunTests(ctx, txn)
	if err != nil {
		return nil, fmt.Errorf("compiling the tests: %w", err)
	}
	var results []*tester.Result
	for t := range ch {
		results = append(results, t)
	}
	slices.SortFunc(results, func(a, b *tester.Result) int {
		return strings.Compare(testName(a), testName(b))
	})
	return results, nil
}
