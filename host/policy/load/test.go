package load

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/tester"
)

// TestReport is what the tests of a site said. Coverage is in percent of the lines of its rules.
type TestReport struct {
	Tests    []TestResult   `json:"tests"`
	Failed   int            `json:"failed"`
	Coverage float64        `json:"coverage"` // 100 when the site has no rules
	Rules    []RuleCoverage `json:"rules"`    // in the order of the files
}

// TestResult is one test. Where is file:line.
type TestResult struct {
	Name   string        `json:"name"`
	Where  string        `json:"where"`
	Passed bool          `json:"passed"`
	Output string        `json:"output,omitempty"`
	Took   time.Duration `json:"took_ns"`
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
	results, err := c.runTests(ctx, tests, nil)
	var wrong []error
	for _, t := range results {
		if !t.Pass() {
			wrong = append(wrong, fmt.Errorf("%s: test %s did not pass%s", t.Location,
				testName(t), strings.TrimRight("\n"+output(t), "\n")))
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

func testName(t *tester.Result) string {
	return strings.TrimPrefix(t.Package, "data.") + "." + t.Name
}

// output is what a test printed, each line once, and the error that ended it. Questions that cannot
// be made print why; the error below says less.
func output(t *tester.Result) string {
	var lines []string
	for line := range strings.Lines(string(t.Output)) {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if t.Error != nil &&
		(len(lines) == 0 || !strings.Contains(t.Error.Error(), "testing.parts.stop")) {
		lines = append(lines, t.Error.Error()+"\n")
	}
	return strings.Join(lines, "")
}

// runTests compiles everything with the given tests and runs them, with the evaluator that decides
// and on the site's data. Tables are derived anew in each test, since tests replace the data. The
// tracer may be nil.
func (c *Candidate) runTests(ctx context.Context, tests map[string]*ast.Module,
	covered *covering) ([]*tester.Result, error) {
	if len(tests) == 0 {
		return nil, nil
	}
	store, err := c.store(map[string]any{"testing": value.Of(c.inventory.world())})
	if err != nil {
		return nil, err
	}
	txn, err := store.NewTransaction(ctx)
	if err != nil {
		return nil, err
	}
	defer store.Abort(ctx, txn)
	all, err := c.helperModules()
	if err != nil {
		return nil, err
	}
	maps.Copy(all, c.modules)
	for name, m := range tests { // the runner changes their names
		all[name] = m.Copy()
	}
	runner := tester.NewRunner().SetCompiler(c.newCompiler().WithRewriteTestRules(true).
		WithEnablePrintStatements(true)).
		SetStore(store).SetModules(all).RaiseBuiltinErrors(true).
		CapturePrintOutput(true).SetTimeout(time.Minute)
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
