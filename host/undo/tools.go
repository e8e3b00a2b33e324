package undo

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/native"
	"github.com/caponier-mcp/caponier/host/terms"
)

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

func targets(args map[string]any) (terms.Targets, error) {
	node, _ := args["node"].(string)
	id, _ := args["vmid"].(string)
	return terms.Targets{Nodes: []string{node}, VMIDs: []string{id}}, nil
}

func lookTargets(args map[string]any) (t terms.Targets, err error) {
	of := func(name string) []string {
		if v, is := args[name].(string); is {
			return []string{v}
		}
		return []string{}
	}
	return terms.Targets{Nodes: of("node"), VMIDs: of("guest"), Services: of("unit"),
		Paths: of("file"), Hosts: []string{}, GuestPaths: []string{}, LocalPaths: []string{}}, nil
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
	_, err = g.run(ctx, g.tool(), "snapshot", g.VMID, name, "--description",
		"before call "+call)
	seen, op := g.check(ctx, name, true), (*terms.OpError)(nil)
	switch {
	case err == nil:
		return found{g.Status == "running", g.node, g.tool()}, seen
	case errors.As(seen, &op) && op.Code == notTaken && !unknown(err):
		op.Message = err.Error()
		return nil, op
	}
	return nil, err
}

func unknown(err error) bool {
	op := (*terms.OpError)(nil)
	return errors.As(err, &op) && op.Outcome == terms.Unknown
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
