package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/fsnotify/fsnotify"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/tester"
)

// Report is what Check found in a folder that is fit to decide.
type Report struct {
	Revision string `json:"revision"`
	Rules    int    `json:"rules"` // of the site
	Tests    int    `json:"tests"` // of the site, all passed
}

// Check builds the policy of a folder as the host would. Its error lists what must change, each
// with file and place.
func Check(ctx context.Context, dir string) (Report, error) {
	r, err := load(ctx, dir)
	if err != nil {
		return Report{}, err
	}
	rep := Report{Revision: r.id}
	for name, m := range r.modules {
		if owned(name) {
			rep.Rules += len(m.Rules)
		}
	}
	for name, m := range r.tests {
		if owned(name) {
			for _, rule := range m.Rules {
				if strings.HasPrefix(string(rule.Head.Name), "test_") {
					rep.Tests++
				}
			}
		}
	}
	return rep, nil
}

func owned(name string) bool { return strings.HasPrefix(name, "site/") }

func load(ctx context.Context, dir string) (*revision, error) {
	files, err := siteFiles(dir)
	if err != nil {
		return nil, err
	}
	r, err := build(ctx, files)
	if err != nil {
		return nil, fmt.Errorf("policy of %s: %w", dir, err)
	}
	return r, nil
}

// TestReport is what the tests of core and site said. Coverage is in percent of lines.
type TestReport struct {
	Tests        []TestResult `json:"tests"`
	Failed       int          `json:"failed"`
	CoreCoverage float64      `json:"core_coverage"`
	SiteCoverage float64      `json:"site_coverage"` // 100 when the site has no rules
	// lines of the site: file:line, file:line-line
	NotCovered     []string `json:"not_covered"`
	CoreNotCovered []string `json:"core_not_covered"`
}

// TestResult is one test. Where is file:line.
type TestResult struct {
	Name   string        `json:"name"`
	Where  string        `json:"where"`
	Passed bool          `json:"passed"`
	Output string        `json:"output,omitempty"`
	Took   time.Duration `json:"took_ns"`
}

// Test runs every test of the core and of the folder's site, and measures what they covered. A test
// that fails is in the report, not an error.
func Test(ctx context.Context, dir string) (TestReport, error) {
	r, err := load(ctx, dir)
	if err != nil {
		return TestReport{}, err
	}
	covered := cover.New()
	results, err := r.runTests(ctx, r.tests, covered)
	if err != nil {
		return TestReport{}, err
	}
	var rep TestReport
	for _, t := range results {
		res := TestResult{
			Name:   strings.TrimPrefix(t.Package, "data.") + "." + t.Name,
			Where:  t.Location.String(),
			Passed: t.Pass(),
			Output: string(t.Output),
			Took:   t.Duration,
		}
		if t.Error != nil {
			res.Output += t.Error.Error()
		}
		if !res.Passed {
			rep.Failed++
		}
		rep.Tests = append(rep.Tests, res)
	}
	core, site := map[string]*ast.Module{}, map[string]*ast.Module{}
	for name, m := range r.modules {
		if owned(name) {
			site[name] = m
		} else {
			core[name] = m
		}
	}
	rep.CoreCoverage, rep.CoreNotCovered = coverage(covered, core)
	rep.SiteCoverage = 100
	if len(site) > 0 {
		rep.SiteCoverage, rep.NotCovered = coverage(covered, site)
	}
	return rep, nil
}

// coverage counts only the lines of these modules; the tracer has seen those of the tests as well.
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

// runTests compiles everything with the given tests and runs them. The tracer may be nil.
func (r *revision) runTests(
	ctx context.Context,
	tests map[string]*ast.Module,
	covered *cover.Cover,
) ([]*tester.Result, error) {
	if len(tests) == 0 {
		return nil, nil
	}
	all := map[string]*ast.Module{}
	for name, m := range r.modules {
		all[name] = m.Copy()
	}
	for name, m := range r.tests { // all are compiled: those of the core bring the fixtures
		all[name] = m.Copy()
	}
	txn, err := r.store.NewTransaction(ctx)
	if err != nil {
		return nil, err
	}
	defer r.store.Abort(ctx, txn)
	runner := tester.NewRunner().
		SetCompiler(r.compiler().WithRewriteTestRules(true)).
		SetStore(r.store).
		SetModules(all).
		RaiseBuiltinErrors(true).
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
	slices.SortFunc(
		results,
		func(a, b *tester.Result) int { return strings.Compare(a.Package+"."+a.Name, b.Package+"."+b.Name) },
	)
	return results, nil
}

// Eval answers a hypothetical question: input is a document as docs/policy.md describes it, with
// every field, as the journal holds them.
func Eval(ctx context.Context, dir string, input []byte) (gate.Decision, error) {
	entry, in, err := decodeInput(input)
	if err != nil {
		return gate.Decision{}, err
	}
	r, err := load(ctx, dir)
	if err != nil {
		return gate.Decision{}, err
	}
	a, err := r.answer(ctx, entry, inputTerm(in).Value)
	if err != nil {
		return gate.Decision{}, err
	}
	return a.decision(gate.Decision{Revision: r.id, Input: inputJSON(in)}), nil
}

// decodeInput reads an input document strictly: what is missing, unknown or of another type is an
// error, for it would decide something else than was meant.
func decodeInput(data []byte) (entry string, in any, err error) {
	v, err := abi.Decode(data, maxFile)
	if err != nil {
		return "", nil, err
	}
	m, _ := v.(map[string]any)
	var a *args
	switch m["schema"] {
	case callSchema:
		doc := &callInput{}
		entry, in, a = "call", doc, &doc.Args
	case operationSchema:
		doc := &operationInput{}
		entry, in, a = "operation", doc, &doc.Args
	case visibleSchema:
		entry, in, a = "visible", &visibleInput{}, &args{}
	default:
		return "", nil, fmt.Errorf(
			"schema %v is none of %s, %s, %s",
			m["schema"],
			callSchema,
			operationSchema,
			visibleSchema,
		)
	}
	plain, err := abi.Encode(v)
	if err != nil {
		return "", nil, err
	}
	d := json.NewDecoder(bytes.NewReader(plain))
	d.DisallowUnknownFields()
	if err := d.Decode(in); err != nil {
		return "", nil, fmt.Errorf("input: %w", err)
	}
	if outer, ok := m["args"].(map[string]any); ok {
		a.Scalars, _ = outer["scalars"].(map[string]any)
	}
	for k, x := range a.Scalars {
		switch x.(type) {
		case string, bool, int64:
		default:
			return "", nil, fmt.Errorf("input: args.scalars.%s is neither text, true, false nor an integer", k)
		}
	}
	again, err := abi.Decode(inputJSON(in), maxFile)
	if err != nil {
		return "", nil, err
	}
	if missing := difference("input", v, again); missing != "" {
		return "", nil, errors.New(missing)
	}
	return entry, in, nil
}

// difference names the first place where a document and what was understood of it are not the same.
func difference(at string, given, understood any) string {
	switch u := understood.(type) {
	case map[string]any:
		g, ok := given.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s must be an object", at)
		}
		for k := range u {
			if _, ok := g[k]; !ok {
				return fmt.Sprintf("%s.%s is missing", at, k)
			}
			if d := difference(at+"."+k, g[k], u[k]); d != "" {
				return d
			}
		}
		if len(g) != len(u) {
			return fmt.Sprintf("%s has unknown members", at)
		}
	case []any:
		g, ok := given.([]any)
		if !ok || len(g) != len(u) {
			return fmt.Sprintf("%s must be a list", at)
		}
		for i := range u {
			if d := difference(fmt.Sprintf("%s[%d]", at, i), g[i], u[i]); d != "" {
				return d
			}
		}
	default:
		if given != understood {
			return fmt.Sprintf("%s is %v and means %v", at, given, understood)
		}
	}
	return ""
}

// Watch reloads when a file of the site changes, until ctx ends. It tells report how each reload
// went; nil is a good one.
func (e *Engine) Watch(ctx context.Context, report func(error)) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching %s: %w", e.options.Site, err)
	}
	defer w.Close()
	add := func() error {
		return filepath.WalkDir(e.options.Site, func(p string, d os.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			return w.Add(p)
		})
	}
	if err := add(); err != nil {
		return fmt.Errorf("watching %s: %w", e.options.Site, err)
	}
	// Editors write a file in several steps; the last of them counts.
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev, ok := <-w.Events:
			if ok && !strings.HasPrefix(path.Base(filepath.ToSlash(ev.Name)), ".") {
				settled = time.After(200 * time.Millisecond)
			}
		case err := <-w.Errors:
			report(fmt.Errorf("watching %s: %w", e.options.Site, err))
		case <-settled:
			settled = nil
			report(errors.Join(add(), e.Reload(ctx)))
		}
	}
}
