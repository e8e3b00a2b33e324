package inventory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/cluster"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/native"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// toolName is in core policy too.
const toolName = "read_cluster"

const (
	budget   = 10 * time.Second // of one node
	maxBytes = 4 << 20          // of the list of a large cluster
)

// Tool reads the guests and nodes of the cluster of "node".
var Tool = native.Tool{Name: toolName, Imports: []string{"ssh_exec"}, Budget: budget, Do: read,
	Commands: []string{"pvesh get /cluster/resources", "pvesh get /cluster/status"},
	Runs:     "pvesh get /cluster/status and /cluster/resources",
	Targets: func(args map[string]any) (terms.Targets, error) {
		node, _ := args["node"].(string)
		return terms.Targets{Nodes: []string{node}, VMIDs: []string{}, Services: []string{},
			Hosts: []string{}, Paths: []string{}, GuestPaths: []string{},
			LocalPaths: []string{}}, nil
	}}

// read checks the quorum first, because a node without quorum still answers with old values.
func read(ctx context.Context, r *gate.Running) (any, error) {
	status, err := get(ctx, r, "/cluster/status")
	if err == nil {
		err = cluster.Quorate(status, member(r.Call))
	}
	if err != nil {
		return nil, err
	}
	list, err := get(ctx, r, "/cluster/resources")
	if err != nil {
		return nil, err
	}
	return cluster.Read(list)
}

// member reports whether the inventory has another node in the cluster of the call's node.
func member(c *terms.Call) bool {
	node, _ := c.Args.Value["node"].(string)
	of := ""
	for _, n := range c.Nodes {
		if n.Name == node {
			of = n.Cluster
		}
	}
	return of != "" && slices.ContainsFunc(c.Nodes, func(n terms.Node) bool {
		return n.Cluster == of && n.Name != node
	})
}

func get(ctx context.Context, r *gate.Running, path string) ([]byte, error) {
	node, _ := r.Call.Args.Value["node"].(string)
	res, err := r.Operate(ctx, abi.SSHExec{OnNode: abi.OnNode{Node: node}, MaxBytes: maxBytes,
		Argv: []string{"pvesh", "get", path, "--output-format", "json"}})
	if err != nil {
		return nil, err
	}
	v, _ := res.Value.(abi.ExecResponse)
	if v.Exit != 0 || v.Truncated {
		return nil, fmt.Errorf("pvesh get %s: exit %d: %.200q", path, v.Exit,
			strings.TrimSpace(v.Stderr))
	}
	return []byte(v.Stdout), nil
}
