package policy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
)

// checkData holds the site's data against its schema, then against core/lint.rego.
func (r *revision) checkData(ctx context.Context) error {
	schema := r.schemas.Get(ast.MustParseRef("schema.site"))
	rs, err := rego.New(rego.Query("json.match_schema(data.site, input)[1]"), rego.Store(r.store), rego.Input(schema), rego.StrictBuiltinErrors(true)).Eval(ctx)
	if err != nil {
		return fmt.Errorf("holding the site's data against its schema: %w", err)
	}
	var wrong []error
	if len(rs) != 1 {
		return errors.New("holding the site's data against its schema: no answer")
	}
	for _, w := range rs[0].Expressions[0].Value.([]any) {
		m, _ := w.(map[string]any)
		wrong = append(wrong, fmt.Errorf("%s: %v", r.place(fmt.Sprint(m["field"])), m["desc"]))
	}
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	c, err := r.compile(ctx, r.modules)
	if err != nil {
		return err
	}
	rs, err = rego.New(rego.Query("data.caponier.core.lint.problems"), rego.Compiler(c), rego.Store(r.store), rego.StrictBuiltinErrors(true)).Eval(ctx)
	if err != nil || len(rs) != 1 {
		return fmt.Errorf("looking for mistakes in the site's data: %d answers, %w", len(rs), err)
	}
	for _, p := range rs[0].Expressions[0].Value.([]any) {
		at, what, _ := strings.Cut(fmt.Sprint(p), ": ")
		wrong = append(wrong, fmt.Errorf("%s: %s", r.place(strings.ReplaceAll(at, "/", ".")), what))
	}
	return errors.Join(wrong...)
}

// place names a key of the site's data.
func (r *revision) place(field string) string { return "site/data.yaml: " + field }

func (r *revision) lint() error { return nil }

// testSite runs the site's own tests. Rules that have none, or fail them, are not taken.
func (r *revision) testSite(ctx context.Context) error {
	rules := 0
	for name, m := range r.modules {
		if strings.HasPrefix(name, "site/") {
			rules += len(m.Rules)
		}
	}
	tests := map[string]*ast.Module{}
	for name, m := range r.tests {
		if strings.HasPrefix(name, "site/") {
			tests[name] = m
		}
	}
	results, err := r.runTests(ctx, tests, nil)
	if err != nil {
		return err
	}
	var wrong []error
	for _, t := range results {
		if !t.Pass() {
			wrong = append(wrong, fmt.Errorf("%s: test %s.%s did not pass", t.Location, strings.TrimPrefix(t.Package, "data."), t.Name))
		}
	}
	if rules > 0 && len(results) == 0 {
		wrong = append(wrong, errors.New("the site has rules but no tests: write test_… rules beside them in files that end in _test.rego"))
	}
	return errors.Join(wrong...)
}
