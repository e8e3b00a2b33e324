package store

import (
	"context"

	"github.com/caponier-mcp/caponier/host/gate"
)

var bg = context.Background()

var aTool = &gate.Tool{Kind: "tool", Name: "stop"}

func call(principal string, vmids ...string) *gate.Call {
	return &gate.Call{Tool: aTool, Principal: gate.Principal{ID: principal},
		Targets: gate.Targets{VMIDs: vmids, Nodes: []string{"pve1"}}}
}
