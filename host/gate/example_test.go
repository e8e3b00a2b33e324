package gate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// parts are small ones of a door. A real host has policy, journal, store, sandbox and SSH.
type parts struct{ argv []string }

// Decide allows the call, and of operations only uptime.
func (parts) Decide(_ context.Context, q terms.Question) (terms.Decision, error) {
	if q.Kind == terms.KindOperation && q.Cmd.Rendered != "uptime" {
		return terms.Decision{Failed: []string{"grants"}}, nil
	}
	return terms.Decision{Allow: true, Tier: terms.Green}, nil
}

func (parts) Intent(_ context.Context, r terms.Record, _ bool) error {
	fmt.Println("journal:", strings.TrimSpace(r.Type+" "+r.Kind+" "+r.Op))
	return nil
}

func (parts) Outcome(_ context.Context, r terms.Record) error {
	fmt.Println("journal:", strings.TrimSpace(r.Kind+" "+r.Op), r.Outcome)
	return nil
}

func (parts) Take(context.Context, *terms.Call) (terms.Counts, func(), error) {
	return terms.Counts{}, func() {}, nil
}

func (parts) Note(string, time.Time, time.Duration)                  {}
func (parts) Wait(string, time.Time) (time.Duration, int)            { return 0, 0 }
func (parts) Ready(context.Context, *terms.Call, func(string)) error { return nil }

// Run stands for a plugin, which asks the door for one operation.
func (p parts) Run(ctx context.Context, r *gate.Running) (terms.Output, error) {
	op := abi.SSHExec{OnNode: abi.OnNode{Node: "pve1"}, Argv: p.argv}
	if _, err := r.Operate(ctx, op); err != nil {
		return terms.Output{Code: 1, JSON: []byte(`{}`)}, nil
	}
	return terms.Output{JSON: []byte(`{}`)}, nil
}

func (parts) Lookup(
	context.Context,
	terms.Question,
) (terms.Facts, error) {
	return terms.Facts{}, nil
}
func (parts) End(context.Context, *terms.Call) {}

// Execute stands for SSH. Only the door calls it.
func (parts) Execute(_ context.Context, q terms.Question, _ terms.Decision) (terms.Result, error) {
	fmt.Println("executed:", q.Cmd.Rendered)
	return terms.Result{Value: abi.ExecResponse{}}, nil
}

func (parts) Script(string) terms.Command { return terms.Command{} }
func (parts) Argv(argv []string) terms.Command {
	return terms.Command{Form: "argv", Rendered: strings.Join(argv, " "),
		Lowered: terms.Lowered{Parsed: true}}
}

// What the decider allows is journaled, then done. What it refuses is journaled, and not done.
func ExampleDoor_Call() {
	tool := &terms.Tool{Kind: "tool", Name: "try", Imports: []string{"ssh_exec"},
		Budget:   time.Minute,
		Validate: func(map[string]any) error { return nil },
		Derive: func(terms.Principal, map[string]any) (terms.Targets, []terms.CommandText, error) {
			return terms.Targets{}, nil, nil
		}}
	for _, argv := range [][]string{{"uptime"}, {"rm", "-r", "/"}} {
		p := &parts{argv}
		door := gate.New(
			gate.Options{Nodes: []terms.Node{{Name: "pve1", Default: true}}, Decider: p,
				Journal: p, Ledger: p, Lowerer: p, Throttle: p,
				Mode:      func(context.Context) terms.Mode { return terms.Mode{} },
				Executors: map[string]terms.Executor{"ssh_exec": p}},
			p,
		)
		a := door.Call(context.Background(), terms.Request{Source: "cli",
			Principal: terms.Principal{ID: "agent-a"}, Tool: tool})
		for _, refused := range a.Refused {
			fmt.Println("refused:", refused.Failed, errors.Is(refused, terms.ErrRefused))
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
