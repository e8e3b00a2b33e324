package policy_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/memo"
	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/caponier-mcp/caponier/host/terms"
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

// A list asks of each node of the inventory. What that costs must not grow with the inventory, or a
// list costs the square of it.
func TestAskingOfOneNodeCostsTheSameInALargeInventory(t *testing.T) {
	e, bytes := site(t, lab), map[int]uint64{}
	for _, n := range []int{2, 2_000} {
		q := visibleOf()
		for i := range n {
			q.Call.Nodes = append(q.Call.Nodes, terms.Node{Name: fmt.Sprint("n", i)})
		}
		ask := func() {
			if _, err := e.Decide(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		ask()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 200 {
			ask()
		}
		runtime.ReadMemStats(&after)
		bytes[n] = (after.TotalAlloc - before.TotalAlloc) / 200
	}
	if bytes[2_000] > 2*bytes[2] {
		t.Errorf("asked of one node, it allocates %d bytes among 2,000 nodes and %d among two",
			bytes[2_000], bytes[2])
	}
}

func visibleOf() terms.Question {
	q := timed()["tool call"]
	call := *q.Call
	call.Targets = terms.Targets{Nodes: []string{"pve1"}}
	q.Kind, q.Call, q.Facts = terms.KindVisible, &call, terms.Facts{}
	return q
}
