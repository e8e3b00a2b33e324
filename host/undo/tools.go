package undo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/cluster"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/native"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// The names of the tools, in core policy too.
const (
	takeName  = "take_snapshot"
	pruneName = "prune_snapshot"
	lookName  = "look_at"
)

// maxKept is the size of the largest file that is read to be kept or compared.
const maxKept = 1 << 20

var looks = []string{"pvesh get /cluster/resources",
	"pvesh get /nodes/{node}/lxc/{vmid}/feature", "pvesh get /nodes/{node}/qemu/{vmid}/feature",
	"pvesh get /nodes/{node}/lxc/{vmid}/snapshot", "pvesh get /nodes/{node}/qemu/{vmid}/snapshot"}

// Tools are those of the host for its snapshots: each acts on the snapshot "name" of guest "vmid",
// which it finds from "node".
var Tools = []native.Tool{
	{Name: takeName, Imports: []string{"ssh_exec"}, Budget: 3 * time.Minute, Targets: targets,
		Commands: append(slices.Clone(looks), "pct snapshot", "qm snapshot"),
		Runs:     "pct|qm snapshot VMID NAME --description TEXT", Do: take},
	{Name: pruneName, Imports: []string{"ssh_exec"}, Budget: 10 * time.Minute, Targets: targets,
		Commands: append(slices.Clone(looks), "pct delsnapshot", "qm delsnapshot"),
		Runs:     "pct|qm delsnapshot VMID NAME", Do: prune},
	{Name: lookName, Imports: []string{"ssh_exec", "sftp_stat", "sftp_read"}, Budget: time.Minute,
		Targets: lookTargets, Do: lookAt, Runs: "pvesh get, systemctl show, or SFTP read",
		Commands: []string{"pvesh get /cluster/resources",
			"pvesh get /nodes/{node}/lxc/{vmid}/status/current",
			"pvesh get /nodes/{node}/qemu/{vmid}/status/current",
			"pvesh get /nodes/{node}/lxc/{vmid}/config",
			"pvesh get /nodes/{node}/qemu/{vmid}/config", "systemctl show"}},
}

func targets(args map[string]any) (gate.Targets, error) {
	node, _ := args["node"].(string)
	id, _ := args["vmid"].(string)
	return gate.Targets{Nodes: []string{node}, VMIDs: []string{id}}, nil
}

func lookTargets(args map[string]any) (t gate.Targets, err error) {
	of := func(name string) []string {
		if v, is := args[name].(string); is {
			return []string{v}
		}
		return []string{}
	}
	return gate.Targets{Nodes: of("node"), VMIDs: of("guest"), Services: of("unit"),
		Paths: of("file"), Hosts: []string{}, GuestPaths: []string{}, LocalPaths: []string{}}, nil
}

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

func take(ctx context.Context, r *gate.Running) (any, error) {
	name, _ := r.Call.Args.Value["name"].(string)
	call, _ := r.Call.Args.Value["for"].(string)
	g, err := find(ctx, r)
	if err != nil {
		return nil, err
	}
	var feature struct {
		Has json.Number `json:"hasFeature"`
	}
	if err := g.get(ctx, &feature, "feature", "--feature", "snapshot"); err != nil {
		return nil, err
	}
	if feature.Has != "1" {
		return nil, failed("guest %s has no storage that can take snapshots", g.VMID)
	}
	if _, err := g.run(ctx, g.tool(), "snapshot", g.VMID, name, "--description",
		"before call "+call); err != nil {
		return nil, err
	}
	return found{g.Status == "running", g.node, g.tool()}, g.check(ctx, name, true)
}

func prune(ctx context.Context, r *gate.Running) (any, error) {
	name, _ := r.Call.Args.Value["name"].(string)
	g, err := find(ctx, r)
	switch {
	case err != nil:
		return nil, err
	case g.gone || g.check(ctx, name, false) == nil:
		return nil, nil // it is gone, perhaps with its guest
	}
	if _, err := g.run(ctx, g.tool(), "delsnapshot", g.VMID, name); err != nil {
		return nil, err
	}
	return nil, g.check(ctx, name, false)
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
	if !slices.ContainsFunc(r.Call.Nodes, func(n gate.Node) bool {
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
		return failed("Proxmox reported success, but guest %s has no snapshot %s", g.VMID, name)
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
	return &gate.OpError{Code: "no_snapshot", Outcome: gate.Failed,
		Message: fmt.Sprintf(format, args...)}
}
