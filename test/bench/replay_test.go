package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/audit"
	policy "github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/policy/replay"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// BenchmarkReplay decides a journal of 100,000 decisions again with the real binary: half of them
// calls, half of them commands, each of its own id, time and count. It reports the seconds that
// passed and those that the processors worked.
func BenchmarkReplay(b *testing.B) {
	const n = 100_000
	site, dir := "../../examples/lab/site", b.TempDir()
	binary, err := filepath.Abs("../../build/caponier")
	if err != nil {
		b.Fatal(err)
	}
	engine, err := policy.New(b.Context(), policy.Options{Site: site})
	if err != nil {
		b.Fatal(err)
	}
	journal, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "journal")})
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		q := question(i)
		d, err := engine.Decide(b.Context(), q)
		if err != nil || !d.Allow {
			b.Fatalf("%+v %v", d, err)
		}
		kind := map[bool]string{true: "call", false: "operation"}[q.Op == nil]
		r := terms.Record{Type: "intent", Time: time.Now(), ID: q.ID, CallID: q.Call.ID, Kind: kind,
			Op: opOf(q), Principal: "demo", Tool: q.Call.Tool.Name, Tier: d.Tier.String(),
			Revision: d.Revision, Input: d.Input}
		if err := journal.Intent(context.Background(), r, false); err != nil {
			b.Fatal(err)
		}
	}
	if err := journal.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		cmd := exec.Command(binary, "--json", "policy", "replay", site, "--journal",
			filepath.Join(dir, "journal"))
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		var diff replay.Diff
		if err != nil || json.Unmarshal(out, &diff) != nil || diff.Same != n {
			b.Fatalf("%v: %.500s", err, out)
		}
		b.ReportMetric((cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(),
			"CPU-s")
	}
}

func question(i int) terms.Question {
	tool := &terms.Tool{
		Kind:        "tool",
		Name:        "proxmox_container_status",
		Plugin:      terms.Plugin{Name: "containers", Version: "1.0.0", Digest: "sha256:00"},
		Imports:     []string{"ssh_exec"},
		Commands:    []string{"pct status", "pct config"},
		TargetKinds: []string{"vmids"},
	}
	vmid := fmt.Sprint(200 + i%500)
	c := &terms.Call{
		ID:        fmt.Sprint("C", i/2),
		Source:    "stdio",
		Principal: terms.Principal{ID: "demo", Auth: "config"},
		Tool:      tool,
		Args: terms.Args{
			JSON:    json.RawMessage(`{"vmid":` + vmid + `}`),
			Digest:  "sha256:11",
			Scalars: map[string]any{"vmid": int64(200 + i%500)},
		},
		Targets:  terms.Targets{Nodes: []string{"pve1"}, VMIDs: []string{vmid}},
		Clusters: []string{"lab"},
		Nodes: []terms.Node{
			{
				Name:    "pve1",
				Cluster: "lab",
				Host:    "127.0.0.1",
				Port:    22,
				User:    "root",
				Default: true,
			},
		},
		Confirmation: terms.Confirmation{State: "none"},
	}
	q := terms.Question{
		ID:    fmt.Sprint("D", i),
		Kind:  terms.KindCall,
		Call:  c,
		Facts: terms.Facts{Counts: terms.Counts{Calls60s: int64(1 + i%20), TargetCalls60s: 1}},
		Time:  time.Now(),
	}
	if i%2 == 1 {
		argv := []string{"pct", "status", vmid, "--verbose"}
		cmd := shell.Lowerer{}.Argv(argv)
		c.Decided = terms.Decision{Allow: true, Tier: terms.Green}
		q.Kind, q.Op, q.Node, q.Cmd, q.Facts = terms.KindOperation, abi.SSHExec{
			OnNode: abi.OnNode{Node: "pve1"},
			Argv:   argv,
		}, &c.Nodes[0], &cmd, terms.Facts{}
	}
	return q
}

func opOf(q terms.Question) string {
	if q.Op == nil {
		return ""
	}
	return q.Op.Import()
}
