package store

import (
	"context"

	"github.com/caponier-mcp/caponier/host/terms"
)

var bg = context.Background()

var aTool = &terms.Tool{Kind: "tool", Name: "stop"}

func call(principal string, vmids ...string) *terms.Call {
	return &terms.Call{Tool: aTool, Principal: terms.Principal{ID: principal},
		Targets: terms.Targets{VMIDs: vmids, Nodes: []string{"pve1"}}}
}
