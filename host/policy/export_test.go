package policy

import (
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/open-policy-agent/opa/v1/ast"
)

// ReadDecision lets the tests in package policy_test, which import load, read decisions.
func ReadDecision(v ast.Value) (gate.Decision, error) { return decision(v) }
