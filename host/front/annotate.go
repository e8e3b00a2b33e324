package front

import (
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caponier-mcp/caponier/host/gate"
)

// tierOfHints judges a tool by its own word, which counts only where it makes the tool look worse
// than nothing said would.
func tierOfHints(h gate.Hints) gate.Tier {
	switch {
	case h.ReadOnly && !h.Destructive:
		return gate.Green
	case h.Destructive:
		return gate.Red
	}
	return gate.Yellow
}

// annotations say what policy makes of a tool. A tool is called read-only only if policy and the
// tool agree on it, and harmless never on the tool's word alone. All four are always set, since an
// absent destructiveHint or openWorldHint means true.
func annotations(t *gate.Tool, tier gate.Tier) *mcp.ToolAnnotations {
	readOnly := tier == gate.Green && t.Hints.ReadOnly && !t.Hints.Destructive
	// no tier ranks above black
	destructive := t.Hints.Destructive || (tier != gate.Green && tier != gate.Yellow)
	return &mcp.ToolAnnotations{
		ReadOnlyHint:    readOnly,
		DestructiveHint: &destructive,
		IdempotentHint:  readOnly || t.Hints.Idempotent,
		OpenWorldHint:   &t.Hints.OpenWorld,
	}
}
