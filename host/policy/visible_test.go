package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/memo"
	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/open-policy-agent/opa/v1/ast"
)

// TestListsDependOnWhatTheirAnswersAreRememberedBy holds what the rule for lists can read against
// what the key of its answers has. The plugin's digest and the tool's name stand for all of a tool.
func TestListsDependOnWhatTheirAnswersAreRememberedBy(t *testing.T) {
	m := memo.MembersOf(rulesOf(t, lab).Compiler,
		ast.MustParseRef("data.caponier.core.visible.decision"),
		ast.MustParseRef("data.caponier.core.scope.moment")) // which is undefined for lists
	key := []string{"schema", "kind", "source", "principal", "plugin", "tool", "mode", "targets",
		"guests", "planning"} // of which planning is never set
	has := value.Fields(input.Types["visible"])
	for _, path := range strings.Fields(m.String()) {
		if strings.HasPrefix(path, "type_name(") {
			continue // the types in a document are those of its Go type
		}
		top := strings.Split(path+".", ".")[1]
		if slices.Contains(has, top) && !slices.Contains(key, top) {
			t.Errorf("lists depend on %s, and answers are remembered without it", path)
		}
	}
	if !slices.Contains(has, "time") || !slices.Contains(has, "principal") {
		t.Errorf("a document has only %v", has)
	}
}
