package offline

import (
	"context"
	"encoding/json"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/terms"
)

// held holds results to the output schemas of their tools, as a server does.
type held struct{ gate.Runner }

// Run implements gate.Runner.
func (h held) Run(ctx context.Context, r *gate.Running) (terms.Output, error) {
	out, err := h.Runner.Run(ctx, r)
	if err != nil || out.Code != 0 || r.Call.Tool.ValidateOutput == nil {
		return out, err
	}
	var has struct {
		Structured any `json:"structured"`
	}
	if json.Unmarshal(out.JSON, &has) != nil { // a server refuses it in more words
		return out, nil
	}
	if err := r.Call.Tool.ValidateOutput(has.Structured); err != nil {
		return out, &terms.PluginError{Code: "plugin_protocol", Message: "the plugin's output: " +
			"structured does not fit the tool's output schema: " + err.Error()}
	}
	return out, nil
}
