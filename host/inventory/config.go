package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/caponier-mcp/caponier/host/gate"
)

// lookName is the tool by which the host looks at a guest; it is in core policy too.
const lookName = "look_at"

// configs reads the configurations of those of these guests of which none was read since the list
// of their cluster. What cannot be read stays unknown, which the log says.
func (v *Inventory) configs(ctx context.Context, q gate.Question, on place, ids []string) {
	v.mu.Lock()
	k := v.kept[on.cluster]
	asked, known := k.asked, k.list
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		g, is := known.Guest(id)
		return !is || !g.Known() || k.protection[id] != ""
	})
	v.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			g, _ := known.Guest(id)
			node := g.Node
			if !slices.Contains(on.nodes, node) { // any member of the cluster can tell
				node = on.nodes[0]
			}
			said, err := v.protection(ctx, node, id)
			if err != nil {
				slog.Warn("the configuration of a guest is not known, so what depends on it is "+
					"refused", "call", q.Call.ID, "guest", id, "error", err)
				return
			}
			v.mu.Lock()
			defer v.mu.Unlock()
			if k.asked.Equal(asked) { // else it may be older than the list
				k.protection[id] = said
			}
		})
	}
	all.Wait()
}

// protection reads whether Proxmox protects a guest. A configuration without the key says that it
// does not.
func (v *Inventory) protection(ctx context.Context, node, id string) (string, error) {
	a := v.Call(ctx, lookName, map[string]any{"node": node, "guest": id})
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
