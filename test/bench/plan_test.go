package bench

import (
	"context"
	"runtime"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// plan plans what call does.
func (s *subject) plan(t testing.TB, tier string) {
	t.Helper()
	r, err := s.session.CallTool(context.Background(), &mcp.CallToolParams{Name: "execute_ssh",
		Arguments: map[string]any{"node": "pve1", "command": command(tier)},
		Meta:      mcp.Meta{"io.caponier/plan": true}})
	must(t, err)
	if r.IsError || tier != "green" && r.Meta["io.caponier/plan"] == nil {
		t.Fatalf("no plan: %+v %s", r.Meta, r.Content[0].(*mcp.TextContent).Text)
	}
}

// A plan of a command is the call without its effect: neither the sync of the intent nor the
// command. It has one decision more, about the plan as a whole, so that it allocates more.
func TestAPlanCostsNoMoreThanItsCall(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // strace
	}
	p := newPlace(t)
	ours := p.start(t, "caponier", "stdio")
	const n, rounds = 20, 10
	kinds := map[string]func(){"call": func() { ours.call(t, "yellow") },
		"plan": func() { ours.plan(t, "yellow") }}
	for range 10 {
		kinds["call"]()
		kinds["plan"]()
	}
	took, cpu, allocs := map[string][]float64{}, map[string]float64{}, map[string]float64{}
	for range rounds { // in turn, since the machine's load changes
		for kind, do := range kinds {
			was, made := ours.cpu(t), ours.allocations(t)
			for range n {
				took[kind] = append(took[kind], timed(do))
			}
			cpu[kind] += ours.cpu(t) - was
			allocs[kind] += ours.allocations(t) - made
		}
	}
	counts := map[string]map[string]float64{}
	for kind, do := range kinds {
		counts[kind] = ours.syscalls(t, func() {
			for range n {
				do()
			}
		})
		slices.Sort(took[kind])
		t.Logf("%s: p50 %.2f ms, p95 %.2f ms, %.2f ms of processor, %.0f allocations, "+
			"%.1f system calls, %.0f syncs", kind, took[kind][len(took[kind])/2],
			took[kind][len(took[kind])*95/100], cpu[kind]/n/rounds, allocs[kind]/n/rounds,
			own(counts[kind])/n, (counts[kind]["fdatasync"]+counts[kind]["fsync"])/n)
	}
	if syncs := counts["plan"]["fdatasync"] + counts["plan"]["fsync"]; syncs > 0 ||
		own(counts["plan"]) > own(counts["call"]) {
		t.Errorf("%d plans make %.0f syncs and %.0f system calls, as many calls %.0f", n, syncs,
			own(counts["plan"]), own(counts["call"]))
	}
	if allocs["plan"] > 1.4*allocs["call"] { // three decisions instead of two
		t.Errorf("a plan makes %.0f allocations, its call %.0f", allocs["plan"]/n/rounds,
			allocs["call"]/n/rounds)
	}
}
