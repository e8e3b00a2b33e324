package offline

import (
	"context"
	"encoding/json"

	"github.com/caponier-mcp/caponier/host/gate"
)

// held holds results to the output schemas of their tools, as a server does.
type held struct{ gate.Runner }

// Run implements gate.Runner.
func (h held) Run(ctx context.Context, r *gate.Running) (gate.Output, error) {
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
		return out, &gate.PluginError{Code: "plugin_protocol", Message: "the plugin's output: " +
			"structured does not fit the tool's output schema: " + err.Error()}
	}
	return out, nil
}
