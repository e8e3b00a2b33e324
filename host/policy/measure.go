package policy

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/open-policy-agent/opa/v1/rego"
)

// Timing is how long one kind of decision takes, from the question to the decoded answer.
type Timing struct {
	Name    string        `json:"name"`
	Allowed bool          `json:"allowed"` // refusals build reasons and take longer
	P50     time.Duration `json:"p50_ns"`
	P99     time.Duration `json:"p99_ns"`
	Allocs  uint64        `json:"allocs"`
	Bytes   uint64        `json:"bytes"`
}

// Bench makes each kind of decision n times with the policy of a folder, beside an empty rule,
// which is the floor on this machine.
func Bench(ctx context.Context, dir string, n int) ([]Timing, error) {
	if n < 1 {
		return nil, errors.New("measuring decisions: at least one round is needed")
	}
	r, err := load(ctx, dir)
	if err != nil {
		return nil, err
	}
	e := &Engine{options: Options{Site: dir, Deadline: 10 * time.Second}}
	e.current.Store(r)
	empty, err := rego.New(rego.Query("data.empty.allow"), rego.Module("empty.rego", "package empty\n\nallow := true")).
		PrepareForEval(ctx)
	if err != nil {
		return nil, err
	}
	questions := r.samples()
	input := inputTerm(document(questions["tool call"])).Value
	out := []Timing{measure("empty rule", n, func() bool {
		_, err := empty.Eval(ctx, rego.EvalParsedInput(input))
		return err == nil
	})}
	for _, name := range slices.Sorted(maps.Keys(questions)) {
		out = append(out, measure(name, n, func() bool {
			d, err := e.Decide(ctx, *questions[name])
			return err == nil && d.Allow
		}))
	}
	return out, nil
}

func measure(name string, n int, f func() bool) Timing {
	t := Timing{Name: name, Allowed: f()}
	took := make([]time.Duration, n)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range took {
		began := time.Now()
		f()
		took[i] = time.Since(began)
	}
	runtime.ReadMemStats(&after)
	slices.Sort(took)
	t.P50, t.P99 = took[n/2], took[n*99/100]
	t.Allocs, t.Bytes = (after.Mallocs-before.Mallocs)/uint64(
		n,
	), (after.TotalAlloc-before.TotalAlloc)/uint64(
		n,
	)
	return t
}

// samples are a call, an ssh_exec and an http_request that this site may allow: by its first
// principal and that one's first role, with the first of its green tools.
func (r *revision) samples() map[string]*gate.Question {
	site, _ := r.data["site"].(map[string]any)
	first := func(m map[string]any, key string) string {
		for _, v := range textsAt(map[string]any{"": m}, "", key) {
			return v
		}
		return ""
	}
	c := &gate.Call{
		ID:           "bench",
		Source:       "cli",
		Args:         gate.Args{JSON: []byte("{}"), Digest: "sha256:", Scalars: map[string]any{}},
		Confirmation: gate.Confirmation{State: "none"},
		Nodes: []gate.Node{
			{Name: "pve", Cluster: "bench", Host: "192.0.2.1", Port: 22, User: "root"},
		},
		Clusters: []string{"bench"},
		Targets: gate.Targets{
			Nodes: []string{"pve"},
			VMIDs: []string{"999"},
		},
		Decided: gate.Decision{Allow: true, Tier: gate.Green},
	}
	for _, id := range slices.Sorted(maps.Keys(part(site, "principals"))) {
		who := part(part(site, "principals"), id)
		c.Principal = gate.Principal{ID: id, Auth: first(who, "auth")}
		role := part(part(site, "roles"), first(who, "roles"))
		if node := first(role, "nodes"); node != "*" && node != "" {
			c.Targets.Nodes, c.Nodes[0].Name = []string{node}, node
		}
		tools := textsAt(map[string]any{"": role}, "", "tools")
		for _, key := range slices.Sorted(maps.Keys(part(site, "tiers"))) {
			name, isTool := trimKind(key)
			if isTool && part(site, "tiers")[key] == "green" &&
				(slices.Contains(tools, "*") || slices.Contains(tools, name)) {
				c.Tool = &gate.Tool{
					Kind:        "tool",
					Name:        name,
					Plugin:      gate.Plugin{Name: "bench", Digest: "sha256:"},
					Imports:     []string{"ssh_exec"},
					Commands:    []string{"pct status"},
					TargetKinds: []string{"vmids"},
				}
			}
		}
		if c.Tool != nil {
			break
		}
	}
	if c.Tool == nil {
		c.Tool = &gate.Tool{Kind: "tool", Name: "none"}
	}
	web := *c
	tool := *c.Tool
	tool.Imports = []string{"http_request"}
	web.Tool = &tool
	argv := []string{"pct", "status", "999", "--verbose"}
	cmd := gate.Command{
		Form:    "argv",
		Lowered: gate.Lowered{Parsed: true, Calls: []gate.Simple{{Argv: argv, Static: true}}},
	}
	now := time.Unix(1_700_000_000, 0)
	return map[string]*gate.Question{
		"tool call": {
			ID:    "bench",
			Kind:  gate.KindCall,
			Call:  c,
			Time:  now,
			Facts: gate.Facts{Counts: gate.Counts{Calls60s: 1, TargetCalls60s: 1}},
		},
		"ssh_exec": {
			ID:   "bench",
			Kind: gate.KindOperation,
			Call: c,
			Op:   abi.SSHExec{OnNode: abi.OnNode{Node: c.Nodes[0].Name}, Argv: argv},
			Node: &c.Nodes[0],
			Cmd:  &cmd,
			Time: now,
		},
		"http_request": {
			ID:    "bench",
			Kind:  gate.KindOperation,
			Call:  &web,
			Op:    abi.HTTPRequest{Method: "GET", URL: "https://example.com/"},
			Time:  now,
			Facts: gate.Facts{Addrs: []gate.Addr{{IP: "192.0.2.7", Class: "global"}}},
		},
	}
}

func trimKind(key string) (name string, isTool bool) {
	const kind = "tool:"
	if len(key) < len(kind) || key[:len(kind)] != kind {
		return "", false
	}
	return key[len(kind):], true
}
