package policy_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/policy/value"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/open-policy-agent/opa/v1/rego"
)

// timed are questions as the host asks them most often. All but the http_request are allowed.
func timed() map[string]terms.Question {
	call := statusCall()
	call.Time = time.Unix(1_700_000_000, 0)
	op := call
	running := *call.Call
	running.Decided = terms.Decision{Allow: true, Tier: terms.Green}
	argv := []string{"pct", "status", "101", "--verbose"}
	cmd := shell.Lowerer{}.Argv(argv)
	op.Kind, op.Call, op.Facts, op.Cmd = terms.KindOperation, &running, terms.Facts{}, &cmd
	op.Op, op.Node = abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"}, Argv: argv}, &running.Nodes[0]
	web := op
	fetching, tool := running, *running.Tool
	tool.Imports, fetching.Tool = []string{"http_request"}, &tool
	web.Call, web.Node, web.Cmd = &fetching, nil, nil
	web.Op = abi.HTTPRequest{Method: "GET", URL: "https://example.com/"}
	web.Facts = terms.Facts{Addrs: []terms.Addr{{IP: "192.0.2.7", Class: "global"}}}
	return map[string]terms.Question{"tool call": call, "ssh_exec": op, "http_request": web}
}

func BenchmarkDecide(b *testing.B) {
	e := site(b, lab)
	for name, q := range timed() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			took := make([]time.Duration, 0, 1<<16)
			for b.Loop() {
				began := time.Now()
				d, err := e.Decide(context.Background(), q)
				took = append(took, time.Since(began))
				if err != nil || d.Allow != (name != "http_request") {
					b.Fatalf("%v %v", d.Failed, err)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
	q := timed()["tool call"]
	b.Run("input", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			value.Of(input.Of(&q, nil))
		}
	})
	in := input.Of(&q, nil)
	v := value.Of(in)
	b.Run("json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			value.JSON(in, nil, nil)
		}
	})
	pq, err := rego.New(rego.Query("data.empty.allow"),
		rego.Module("e.rego", "package empty\nallow := true")).PrepareForEval(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("empty rule", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := pq.Eval(context.Background(), rego.EvalParsedInput(v)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestDecisionsAllocateNoMoreThanRecorded is the bound on speed that a busy machine does not
// disturb: 1.1 times the recorded allocations and bytes.
func TestDecisionsAllocateNoMoreThanRecorded(t *testing.T) {
	const golden, n = "testdata/allocations.json", 300
	e, got := site(t, lab), map[string][2]uint64{}
	for name, q := range timed() {
		one := func() {
			if _, err := e.Decide(context.Background(), q); err != nil {
				t.Fatal(err)
			}
		}
		one()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			one()
		}
		runtime.ReadMemStats(&after)
		got[name] = [2]uint64{(after.Mallocs - before.Mallocs) / n,
			(after.TotalAlloc - before.TotalAlloc) / n}
	}
	if *update {
		text, _ := json.MarshalIndent(got, "", "  ")
		write(t, "testdata", "allocations.json", string(text)+"\n")
		return
	}
	recorded := map[string][2]uint64{}
	data, err := os.ReadFile(golden)
	if err != nil || json.Unmarshal(data, &recorded) != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if got[name][0] > recorded[name][0]*11/10 || got[name][1] > recorded[name][1]*11/10 {
			t.Errorf("%s: %d allocations of %d bytes, recorded are %v: make it cheaper, or "+
				"record it with "+
				"-update and say why", name, got[name][0], got[name][1], recorded[name])
		}
	}
}
