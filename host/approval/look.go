package approval

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/caponier-mcp/caponier/host/terms"
)

// LookArgs returns the arguments with which a tool of these parameters reads about targets: one set
// for each guest, or else for each node. It returns none for a tool that takes neither, or that
// requires more.
func LookArgs(params []terms.Param, t terms.Targets) (all [][]byte) {
	var guest, node terms.Param
	for _, p := range params {
		switch {
		case p.Type == "array":
		case p.Target == "vmid":
			guest = p
		case p.Target == "node":
			node = p
		}
	}
	var sets []map[string]any
	switch {
	case guest.Name != "":
		for _, id := range t.VMIDs {
			set := map[string]any{guest.Name: id}
			if n, err := strconv.ParseInt(id, 10, 64); err == nil && guest.Type == "integer" {
				set[guest.Name] = n
			}
			if node.Name != "" && len(t.Nodes) == 1 {
				set[node.Name] = t.Nodes[0]
			}
			sets = append(sets, set)
		}
	case node.Name != "":
		for _, n := range t.Nodes {
			sets = append(sets, map[string]any{node.Name: n})
		}
	}
	for _, set := range sets {
		lacks := func(p terms.Param) bool { return p.Required && set[p.Name] == nil }
		if data, err := json.Marshal(set); err == nil && !slices.ContainsFunc(params, lacks) {
			all = append(all, data)
		}
	}
	return all
}
