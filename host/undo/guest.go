package undo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/cluster"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// maxKept is the size of the largest file that is read to be kept or compared.
const maxKept = 1 << 20

// guest is one that a tool found.
type guest struct {
	r      *gate.Running
	node   string // that it is on; if there is none, that was asked
	Type   string // lxc or qemu; "" if there is none
	VMID   string
	Status string
	gone   bool // the node lists guests, and this is none of them
}

// found is what take says of the guest.
type found struct {
	Running bool   `json:"running"`
	On      string `json:"on"`
	Program string `json:"program"`
}

// find finds the guest of a call in the cluster of its node.
func find(ctx context.Context, r *gate.Running) (guest, error) {
	node, _ := r.Call.Args.Value["node"].(string)
	id, _ := r.Call.Args.Value["vmid"].(string)
	if of, is := r.Call.Args.Value["guest"].(string); is {
		id = of
	}
	from := guest{r: r, node: node}
	out, err := from.run(ctx, "pvesh", "get", "/cluster/resources", "--type", "vm",
		"--output-format", "json")
	if err != nil {
		return from, err
	}
	all, err := cluster.Read([]byte(out))
	if err != nil {
		return from, failed("%s: %v", node, err)
	}
	g, is := all.Guest(id)
	if !is {
		from.gone = true
		return from, nil
	}
	if !g.Known() {
		return from, failed("what %s lists of guest %s is not known to be so", node, id)
	}
	if !slices.ContainsFunc(r.Call.Nodes, func(n terms.Node) bool {
		return n.Name == g.Node && slices.Contains(r.Call.Clusters, n.Cluster)
	}) {
		return from, failed("guest %s is on %q, which is no node of the inventory", id, g.Node)
	}
	return guest{r, g.Node, g.Kind, g.VMID, g.Status, false}, nil
}

func (g guest) tool() string { return map[string]string{"lxc": "pct", "qemu": "qm"}[g.Type] }

// get reads what the API says of the guest.
func (g guest) get(ctx context.Context, into any, what string, options ...string) error {
	if g.Type == "" {
		return failed("the guest is not in the cluster of %s", g.node)
	}
	path := fmt.Sprintf("/nodes/%s/%s/%s/%s", g.node, g.Type, g.VMID, what)
	argv := append([]string{"pvesh", "get", path}, options...)
	out, err := g.run(ctx, append(argv, "--output-format", "json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		return failed("%s did not answer %s: %v", g.node, path, err)
	}
	return nil
}

// check reads the list of snapshots, since a failed task can exit with 0. A list that does not even
// hold the guest as it is now says nothing.
func (g guest) check(ctx context.Context, name string, wanted bool) error {
	var all []struct {
		Name string `json:"name"`
	}
	if err := g.get(ctx, &all, "snapshot"); err != nil {
		return err
	}
	if len(all) == 0 {
		return failed("%s did not list the snapshots of guest %s", g.node, g.VMID)
	}
	for _, s := range all {
		if s.Name == name && !wanted {
			return failed("snapshot %s of guest %s is still there", name, g.VMID)
		} else if s.Name == name {
			return nil
		}
	}
	if wanted {
		return terms.Fail(notTaken, "Proxmox reported success, but guest %s has no snapshot %s",
			g.VMID, name)
	}
	return nil
}

// run runs a command on the guest's node, as every operation is run.
func (g guest) run(ctx context.Context, argv ...string) (string, error) {
	res, err := g.r.Operate(ctx, abi.SSHExec{OnNode: abi.OnNode{Node: g.node}, Argv: argv,
		MaxBytes: 1 << 20})
	if err != nil {
		return "", err
	}
	v, _ := res.Value.(abi.ExecResponse)
	if v.Exit != 0 || v.Truncated {
		return "", failed("%s: exit %d: %s", strings.Join(argv[:2], " "), v.Exit,
			strings.TrimSpace(v.Stderr))
	}
	return v.Stdout, nil
}

func failed(format string, args ...any) error {
	return terms.Fail("no_snapshot", format, args...)
}

// The names of the tools, in core policy too.
const (
	takeName  = "take_snapshot"
	pruneName = "prune_snapshot"
	lookName  = "look_at"
)

// notTaken is the code of a snapshot that is not there, as the node's list of them shows.
const notTaken = "not_taken"
