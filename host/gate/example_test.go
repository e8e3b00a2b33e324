package gate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// parts are small ones of a door. A real host has policy, journal, store, sandbox and SSH.
type parts struct{ argv []string }

// Decide allows the call, and of operations only uptime.
func (parts) Decide(_ context.Context, q gate.Question) (gate.Decision, error) {
	if q.Kind == gate.KindOperation && q.Cmd.Rendered != "uptime" {
		return gate.Decision{Failed: []string{"grants"}}, nil
	}
	return gate.Decision{Allow: true, Tier: gate.Green}, nil
}

func (parts) Intent(_ context.Context, r gate.Record, _ bool) error {
	fmt.Println("journal:", strings.TrimSpace(r.Type+" "+r.Kind+" "+r.Op))
	return nil
}

func (parts) Outcome(_ context.Context, r gate.Record) error {
	fmt.Println("journal:", strings.TrimSpace(r.Kind+" "+r.Op), r.Outcome)
	return nil
}

func (parts) Take(context.Context, *gate.Call) (gate.Counts, func(), error) {
	return gate.Counts{}, func() {}, nil
}

func (parts) Note(string, time.Time, time.Duration)                 {}
func (parts) Wait(string, time.Time) (time.Duration, int)           { return 0, 0 }
func (parts) Ready(context.Context, *gate.Tool, func(string)) error { return nil }

// Run stands for a plugin, which asks the door for one operation.
func (p parts) Run(ctx context.Context, r *gate.Running) (gate.Output, error) {
	op := abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"}, Argv: p.argv}
	if _, err := r.Operate(ctx, op); err != nil {
		return gate.Output{Code: 1, JSON: []byte(`{}`)}, nil
	}
	return gate.Output{JSON: []byte(`{}`)}, nil
}

func (parts) Lookup(context.Context, gate.Question) (gate.Facts, error) { return gate.Facts{}, nil }
func (parts) End(context.Context, *gate.Call)                           {}

// Execute stands for SSH. Only the door calls it.
func (parts) Execute(_ context.Context, q gate.Question, _ gate.Decision) (gate.Result, error) {
	fmt.Println("executed:", q.Cmd.Rendered)
	return gate.Result{Value: abi.ExecResponse{}}, nil
}

func (parts) Script(string) gate.Command { return gate.Command{} }
func (parts) Argv(argv []string) gate.Command {
	return gate.Command{Form: "argv", Rendered: strings.Join(argv, " "),
		Lowered: gate.Lowered{Parsed: true}}
}

// What the decider allows is journaled, then done. What it refuses is journaled, and not done.
func ExampleDoor_Call() {
	tool := &gate.Tool{Kind: "tool", Name: "try", Imports: []string{"ssh_exec"},
		Budget:   time.Minute,
		Validate: func(map[string]any) error { return nil },
		Derive: func(gate.Principal, map[string]any) (gate.Targets, []gate.CommandText, error) {
			return gate.Targets{}, nil, nil
		}}
	for _, argv := range [][]string{{"uptime"}, {"rm", "-r", "/"}} {
		p := &parts{argv}
		door := gate.New(gate.Options{Nodes: []gate.Node{{Name: "pve1", Default: true}}, Decider: p,
			Journal: p, Ledger: p, Lowerer: p, Throttle: p,
			Mode:      func(context.Context) gate.Mode { return gate.Mode{} },
			Executors: map[string]gate.Executor{"ssh_exec": p}}, p)
		a := door.Call(context.Background(), gate.Request{Source: "cli",
			Principal: gate.Principal{ID: "agent-a"}, Tool: tool})
		for _, refused := range a.Refused {
			fmt.Println("refused:", refused.Failed, errors.Is(refused, gate.ErrRefused))
		}
		fmt.Println("outcome:", a.Outcome)
	}
	// Output:
	// journal: intent call
	// journal: intent operation ssh_exec
	// executed: uptime
	// journal: operation ssh_exec succeeded
	// journal: call succeeded
	// outcome: succeeded
	// journal: intent call
	// journal: refused operation ssh_exec
	// journal: call failed
	// refused: [grants] true
	// outcome: failed
}
