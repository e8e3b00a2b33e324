package load

import (
	"maps"
	"slices"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/open-policy-agent/opa/v1/ast"
)

// world is what the package caponier.testing makes questions of, as data.testing.
type world struct {
	Tools  map[string]worldTool `json:"tools"` // by KIND:NAME
	Nodes  []worldNode          `json:"nodes"`
	Words  []string             `json:"words"`  // that shells take for their own
	Shells []string             `json:"shells"` // that run the text in a word
}

type worldTool struct {
	Kind    string                `json:"kind"`
	Plugin  terms.Plugin          `json:"plugin"`
	Tool    input.Tool            `json:"tool"` // as in a question
	OnNode  bool                  `json:"on_node"`
	Confirm string                `json:"confirm"`
	Params  map[string]worldParam `json:"params"`
}

type worldParam struct {
	Type     string `json:"type"`
	Target   string `json:"target"`
	Required bool   `json:"required"`
}

type worldNode struct {
	input.Node
	Port      int    `json:"port"`
	User      string `json:"user"`
	IsDefault bool   `json:"is_default"`
}

// World returns what tests of a site know of the inventory, as JSON: data.testing of the package
// caponier.testing. It holds no secrets.
func (i Inventory) World() []byte { return value.JSON(i.world(), nil, nil) }

func (i Inventory) world() world {
	onNode := func(name string) bool { op, _ := abi.Lookup(name); return op.OnNode }
	w := world{Tools: map[string]worldTool{}}
	w.Words, w.Shells = shell.Special()
	for _, t := range i.Tools {
		q := questionOf(t, i.Nodes)
		params := map[string]worldParam{}
		for _, p := range t.Params {
			params[p.Name] = worldParam{p.Type, p.Target, p.Required}
		}
		w.Tools[t.Kind+":"+t.Name] = worldTool{t.Kind, q.Plugin, q.Tool,
			slices.ContainsFunc(t.Imports, onNode), t.Confirm, params}
	}
	for n, node := range questionOf(&terms.Tool{}, i.Nodes).Nodes {
		of := i.Nodes[n]
		w.Nodes = append(w.Nodes, worldNode{node, of.Port, of.User, of.Default})
	}
	return w
}

// questionOf returns a question about a tool and nodes as the host makes it.
func questionOf(t *terms.Tool, nodes []terms.Node) *input.Call {
	q := terms.Question{Kind: terms.KindCall, Call: &terms.Call{Tool: t, Nodes: nodes}}
	doc, _ := input.Of(&q, nil).(*input.Call)
	return doc
}

// helperModules parses what the tests of a site may use beside their own.
func (c *Candidate) helperModules() (map[string]*ast.Module, error) {
	all := map[string]*ast.Module{}
	for _, name := range slices.Sorted(maps.Keys(c.helpers)) {
		m, err := c.parseModule(name, c.helpers[name])
		if err != nil {
			return nil, err
		}
		all[name] = m
	}
	return all, nil
}
