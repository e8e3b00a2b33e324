package policy

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/open-policy-agent/opa/v1/rego"
)

func BenchmarkDecide(b *testing.B) {
	alone(b)
	e := site(b, "../../examples/lab/site")
	c := callOf("proxmox_container_status", []string{"vmids"}, "ssh_exec")
	q := map[string]gate.Question{
		"call": {
			ID:    "q",
			Kind:  gate.KindCall,
			Call:  c,
			Facts: gate.Facts{Counts: gate.Counts{Calls60s: 1, TargetCalls60s: 1}},
			Time:  time.Now(),
		},
	}
	op := *c
	op.Decided = gate.Decision{Allow: true, Tier: gate.Green}
	cmd := gate.Command{
		Form: "argv",
		Lowered: gate.Lowered{
			Parsed: true,
			Calls: []gate.Simple{
				{Argv: []string{"pct", "status", "101", "--verbose"}, Static: true},
			},
		},
	}
	q["ssh_exec"] = gate.Question{
		ID:   "q",
		Kind: gate.KindOperation,
		Call: &op,
		Op:   abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"}, Argv: cmd.Calls[0].Argv},
		Node: &c.Nodes[0],
		Cmd:  &cmd,
		Time: time.Now(),
	}
	for name, q := range q {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d, err := e.Decide(context.Background(), q)
				if err != nil || !d.Allow {
					b.Fatalf("%+v %v", d, err)
				}
			}
		})
	}
	in := document(
		&gate.Question{
			ID:   "q",
			Kind: gate.KindOperation,
			Call: &op,
			Op:   q["ssh_exec"].Op,
			Node: &c.Nodes[0],
			Cmd:  &cmd,
			Time: time.Now(),
		},
	)
	b.Run("term", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			inputTerm(in)
		}
	})
	b.Run("json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			inputJSON(in)
		}
	})
	b.Run("stdjson", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			json.Marshal(in)
		}
	})
	pq, err := rego.New(rego.Query("data.empty.allow"), rego.Module("e.rego", "package empty\nallow := true")).
		PrepareForEval(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	v := inputTerm(in).Value
	b.Run("empty", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := pq.Eval(context.Background(), rego.EvalParsedInput(v)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
