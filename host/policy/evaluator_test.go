package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caponier-mcp/caponier/host/policy/plan"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
)

// TestMain lets every test of this package ask topdown each question too. What it says is what
// policy tests and `opa eval` say, so the host may decide nothing else. Planning is most of a
// start: equal revisions, of which these tests load many, are planned once.
func TestMain(m *testing.M) {
	evaluatorOf = func(ctx context.Context, r *revision) (evaluator, error) {
		if made, ok := evaluators.Load(r.id); ok {
			return made.(evaluator), nil
		}
		fast, err := onlyPlanned(ctx, r)
		if err != nil {
			return nil, err
		}
		slow, err := newOracle(ctx, r)
		if err != nil {
			return nil, err
		}
		evaluators.Store(r.id, both{fast, slow})
		return both{fast, slow}, nil
	}
	code := m.Run()
	fmt.Printf("topdown was asked %d questions too\n", asked.Load())
	if n := differing.Load(); n > 0 {
		fmt.Printf("FAIL: %d answers differ from topdown's\n", n)
		code = 1
	}
	os.Exit(code)
}

var (
	asked, differing atomic.Int64
	evaluators       sync.Map // evaluators, by the digest of all that they are made of
)

var onlyPlanned = evaluatorOf

// alone measures without the oracle.
func alone(t testing.TB) { evaluateWith(t, onlyPlanned) }

func evaluateWith(t testing.TB, made func(context.Context, *revision) (evaluator, error)) {
	checked := evaluatorOf
	evaluatorOf = made
	t.Cleanup(func() { evaluatorOf = checked })
}

func differ(format string, args ...any) {
	if differing.Add(1) < 10 {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

// both answers with what its evaluators agree on.
type both struct{ fast, slow evaluator }

func (b both) Eval(ctx context.Context, rule string, input ast.Value) (ast.Value, error) {
	v, err := b.fast.Eval(ctx, rule, input)
	w, oracleErr := b.slow.Eval(ctx, rule, input)
	asked.Add(1)
	switch {
	case ctx.Err() != nil:
	case err != nil && oracleErr == nil && !allows(w):
		// topdown's index skipped a rule in which a built-in fails: stricter is fine
	case (err == nil) != (oracleErr == nil):
		differ("%s: planned %v, topdown %v\ninput %v", rule, err, oracleErr, input)
	case err == nil && ((v == nil) != (w == nil) || v != nil && v.Compare(w) != 0):
		differ("%s\nplanned %v\ntopdown %v\ninput %v", rule, v, w, input)
	}
	return v, err
}

func allows(decision ast.Value) bool {
	doc, ok := decision.(ast.Object)
	return !ok || !doc.Get(ast.StringTerm("allow")).Equal(ast.InternedTerm(false))
}

// oracle is OPA's own evaluator, with the same compiler options as for the plan.
type oracle map[string]rego.PreparedEvalQuery

func newOracle(ctx context.Context, r *revision) (oracle, error) {
	compiler, err := r.compile(ctx, r.modules)
	if err != nil {
		return nil, err
	}
	t := oracle{}
	for _, entry := range entries {
		q := rego.New(
			rego.Query("data.caponier.core."+entry+".decision"),
			rego.Compiler(compiler),
			rego.Store(r.store),
			rego.StrictBuiltinErrors(true),
		)
		if t[decisionRule(entry)], err = q.PrepareForEval(ctx); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t oracle) Eval(ctx context.Context, rule string, input ast.Value) (ast.Value, error) {
	rs, err := t[rule].Eval(ctx, rego.EvalParsedInput(input))
	switch {
	case err != nil:
		return nil, err
	case len(rs) == 0:
		return nil, nil
	case len(rs) != 1 || len(rs[0].Expressions) != 1:
		return nil, errors.New("several results")
	}
	return ast.InterfaceToValue(rs[0].Expressions[0].Value)
}

// TestRegoTestsHoldForThePlanToo runs every test rule of core, and of the example that has rules of
// its own, as a plan: what passes in opa test passes in the host.
func TestRegoTestsHoldForThePlanToo(t *testing.T) {
	r := site(t, "../../policies/examples/team").current.Load()
	modules, entries := maps.Clone(r.modules), []string{}
	for name, m := range r.tests {
		modules[name] = m
		for _, rule := range m.Rules {
			if strings.HasPrefix(string(rule.Head.Name), "test_") {
				p, err := m.Package.Path.Extend(rule.Head.Ref()).Ptr()
				if err != nil {
					t.Fatal(err)
				}
				entries = append(entries, p)
			}
		}
	}
	entries = slices.Compact(slices.Sorted(slices.Values(entries)))
	p, err := plan.New(
		context.Background(),
		plan.Options{Modules: modules, Data: r.data, Capabilities: r.caps, Entries: entries},
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		v, err := p.Eval(context.Background(), entry, ast.NullValue)
		if err != nil || v == nil || v.Compare(ast.Boolean(true)) != 0 {
			t.Errorf("%s is %v %v", entry, v, err)
		}
	}
	t.Logf("%d tests", len(entries))
}
