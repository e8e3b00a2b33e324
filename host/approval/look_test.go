package approval

import (
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/terms"
)

// A tool is run for each guest of a request, or for each node, with nothing but what the request
// names. One that needs more is not run.
func TestLookArgsNameTheTargetsAlone(t *testing.T) {
	vmid := terms.Param{Name: "vmid", Type: "integer", Target: "vmid", Required: true}
	text := terms.Param{Name: "vmid", Type: "string", Target: "vmid", Required: true}
	node, n := terms.Param{Name: "node", Target: "node"}, terms.Param{Name: "n", Target: "node",
		Required: true}
	force := terms.Param{Name: "force", Type: "boolean", Required: true}
	ids := terms.Param{Name: "ids", Type: "array", Target: "vmid", Required: true}
	type params = []terms.Param
	one, two := []string{"pve1"}, []string{"pve1", "pve2"}
	for name, tt := range map[string]struct {
		params  params
		targets terms.Targets
		want    string
	}{
		"each guest, on the one node": {params{vmid, node},
			terms.Targets{VMIDs: []string{"105", "106"},
				Nodes: one}, `{"node":"pve1","vmid":105} {"node":"pve1","vmid":106}`},
		"no node where it is not clear": {params{vmid, node}, terms.Targets{VMIDs: []string{"105"},
			Nodes: two}, `{"vmid":105}`},
		"a number as text": {params{text}, terms.Targets{VMIDs: []string{"105"}}, `{"vmid":"105"}`},
		"each node, for a tool without guests": {params{n}, terms.Targets{VMIDs: []string{"105"},
			Nodes: two}, `{"n":"pve1"} {"n":"pve2"}`},
		"nothing, for a tool that needs more": {params{vmid, force},
			terms.Targets{VMIDs: []string{"105"}}, ``},
		"nothing about nothing":               {params{vmid}, terms.Targets{Paths: one}, ``},
		"nothing, for a tool without targets": {params{{Name: "q"}}, terms.Targets{Nodes: one}, ``},
		"nothing, for a tool that takes a list": {params{ids},
			terms.Targets{VMIDs: []string{"105"}}, ``},
	} {
		var got []string
		for _, a := range LookArgs(tt.params, tt.targets) {
			got = append(got, string(a))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}
