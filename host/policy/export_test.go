package policy

import (
	"context"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/open-policy-agent/opa/v1/ast"
)

// ReadDecision lets the tests in package policy_test, which import load, read decisions.
func ReadDecision(v ast.Value) (terms.Decision, error) { return decision(v) }

// KeyOf returns what the host remembers a decision about the input by.
func (r *Rules) KeyOf(in ast.Value) string { return r.allowed.Key(input.Entry(in), in) }

// Afresh answers as [Rules.Answer], and remembers nothing.
func (r *Rules) Afresh(ctx context.Context, in ast.Value) (terms.Decision, error) {
	d, err := r.answer(ctx, input.Entry(in), in)
	d.Revision = r.Revision
	return d, err
}
