package approval

import (
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/gate"
)

// A tool is run for each guest of a request, or for each node, with nothing but what the request
// names. One that needs more is not run.
func TestLookArgsNameTheTargetsAlone(t *testing.T) {
	vmid := gate.Param{Name: "vmid", Type: "integer", Target: "vmid", Required: true}
	text := gate.Param{Name: "vmid", Type: "string", Target: "vmid", Required: true}
	node, n := gate.Param{Name: "node", Target: "node"}, gate.Param{Name: "n", Target: "node",
		Required: true}
	force := gate.Param{Name: "force", Type: "boolean", Required: true}
	ids := gate.Param{Name: "ids", Type: "array", Target: "vmid", Required: true}
	type params = []gate.Param
	one, two := []string{"pve1"}, []string{"pve1", "pve2"}
	for name, tt := range map[string]struct {
		params  params
		targets gate.Targets
		want    string
	}{
		"each guest, on the one node": {params{vmid, node},
			gate.Targets{VMIDs: []string{"105", "106"},
				Nodes: one}, `{"node":"pve1","vmid":105} {"node":"pve1","vmid":106}`},
		"no node where it is not clear": {params{vmid, node}, gate.Targets{VMIDs: []string{"105"},
			Nodes: two}, `{"vmid":105}`},
		"a number as text": {params{text}, gate.Targets{VMIDs: []string{"105"}}, `{"vmid":"105"}`},
		"each node, for a tool without guests": {params{n}, gate.Targets{VMIDs: []string{"105"},
			Nodes: two}, `{"n":"pve1"} {"n":"pve2"}`},
		"nothing, for a tool that needs more": {params{vmid, force},
			gate.Targets{VMIDs: []string{"105"}}, ``},
		"nothing about nothing":               {params{vmid}, gate.Targets{Paths: one}, ``},
		"nothing, for a tool without targets": {params{{Name: "q"}}, gate.Targets{Nodes: one}, ``},
		"nothing, for a tool that takes a list": {params{ids},
			gate.Targets{VMIDs: []string{"105"}}, ``},
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
