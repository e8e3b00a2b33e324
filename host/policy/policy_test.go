package policy

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

func site(t testing.TB, dir string) *Engine {
	t.Helper()
	e, err := New(context.Background(), Options{Site: dir, Deadline: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func callOf(tool string, kinds []string, imports ...string) *gate.Call {
	return &gate.Call{
		ID:        "C1",
		Source:    "stdio",
		Principal: gate.Principal{ID: "demo", Auth: "config"},
		Tool: &gate.Tool{
			Kind:        "tool",
			Name:        tool,
			Plugin:      gate.Plugin{Name: "containers", Version: "1.0.0", Digest: "sha256:00"},
			Imports:     imports,
			TargetKinds: kinds,
			Commands:    []string{"pct status", "pct stop", "pct exec", "pct push", "uptime"},
		},
		Args: gate.Args{
			JSON:    json.RawMessage(`{"vmid":101}`),
			Digest:  "sha256:11",
			Scalars: map[string]any{"vmid": int64(101)},
		},
		Targets: gate.Targets{
			Nodes: []string{"pve1"},
			VMIDs: []string{"101"},
		},
		Clusters: []string{"lab"},
		Nodes: []gate.Node{
			{
				Name:    "pve1",
				Cluster: "lab",
				Host:    "127.0.0.1",
				Port:    22,
				User:    "root",
				Default: true,
			},
			{Name: "pve2", Cluster: "lab", Host: "127.0.0.2", Port: 22, User: "root"},
		},
		Confirmation: gate.Confirmation{State: "none"},
	}
}

func TestFirst(t *testing.T) {
	e := site(t, "../../examples/lab/site")
	c := callOf("proxmox_container_status", []string{"vmids"}, "ssh_exec")
	d, err := e.Decide(
		context.Background(),
		gate.Question{
			ID:    "q",
			Kind:  gate.KindCall,
			Call:  c,
			Facts: gate.Facts{Counts: gate.Counts{Calls60s: 1, TargetCalls60s: 1}},
			Time:  time.Now(),
		},
	)
	d.Input = nil
	t.Logf("%+v %v", d, err)
	c.Decided = d
	cmd := gate.Command{
		Form: "argv",
		Lowered: gate.Lowered{
			Parsed: true,
			Calls: []gate.Simple{
				{Argv: []string{"pct", "status", "101", "--verbose"}, Static: true},
			},
		},
	}
	d, err = e.Decide(
		context.Background(),
		gate.Question{
			ID:   "q",
			Kind: gate.KindOperation,
			Call: c,
			Op:   abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"}, Argv: cmd.Calls[0].Argv},
			Node: &c.Nodes[0],
			Cmd:  &cmd,
			Time: time.Now(),
		},
	)
	d.Input = nil
	t.Logf("%+v %v", d, err)
	d, err = e.Decide(
		context.Background(),
		gate.Question{ID: "q", Kind: gate.KindVisible, Call: c, Time: time.Now()},
	)
	t.Logf("%+v %v", d, err)
	cmd.Calls[0].Argv = []string{"pct", "stat", "101", "--verbose"}
	d, err = e.Decide(
		context.Background(),
		gate.Question{
			ID:   "q",
			Kind: gate.KindOperation,
			Call: c,
			Op:   abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"}, Argv: cmd.Calls[0].Argv},
			Node: &c.Nodes[0],
			Cmd:  &cmd,
			Time: time.Now(),
		},
	)
	t.Logf("%+v %v", d, err)
}
