package inventory

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/caponier-mcp/caponier/host/terms"
)

// lookName is the tool by which the host looks at a guest; it is in core policy too.
const lookName = "look_at"

// protection reports whether Proxmox protects a guest. Without the key, it does not.
func protection(ctx context.Context, call func(context.Context, string, any) terms.Answer,
	node, id string) (string, error) {
	a := call(ctx, lookName, map[string]any{"node": node, "guest": id})
	if a.Err != nil {
		return "", a.Err
	}
	var state struct {
		Config string            `json:"config"`
		Values map[string]string `json:"values"`
	}
	if err := json.Unmarshal(a.Output.JSON, &state); err != nil {
		return "", err
	}
	said, there := state.Values["protection"]
	switch {
	case state.Config == "": // as of a guest that is gone
		return "", fmt.Errorf("guest %s has no configuration", id)
	case !there || said == "0":
		return "off", nil
	case said == "1":
		return "on", nil
	}
	return "", fmt.Errorf("the protection of guest %s is %.20q", id, said)
}
