// Package native runs the host's own tools: Go functions that, as plugins do, only ask for
// operations.
package native

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/terms"
)

// Host is the id, the way of authentication, the source and the kind of tool of the host's own
// calls. Core policy has a table of what they may do.
const Host = "host"

// Tool is a tool of the host itself. Only the host can call it.
type Tool struct {
	Name     string
	Runs     string   // one line: what it does on the node
	Imports  []string // operations that it asks for
	Commands []string // grammar entries that it runs
	Budget   time.Duration
	// Targets returns what a call with these arguments acts on.
	Targets func(args map[string]any) (terms.Targets, error)
	// Do does the work. It acts only through r.Operate, on the decided arguments, and returns the
	// output.
	Do func(ctx context.Context, r *gate.Running) (result any, err error)
}

// Runner runs the tools of the host, and lets Next run all others. It is safe for concurrent use.
type Runner struct {
	next  gate.Runner
	tools map[*terms.Tool]Tool
	named map[string]*terms.Tool
}

// New returns a Runner with these tools.
func New(next gate.Runner, version string, tools ...Tool) *Runner {
	r := &Runner{next: next, tools: map[*terms.Tool]Tool{}, named: map[string]*terms.Tool{}}
	for _, t := range tools {
		own := &terms.Tool{Kind: Host, Name: t.Name, Runs: t.Runs, Imports: t.Imports,
			Commands: t.Commands, Budget: t.Budget, Plans: true,
			Plugin:   terms.Plugin{Name: Host, Version: version, Digest: "host:" + version},
			Validate: func(map[string]any) error { return nil },
			Derive: func(_ terms.Principal, args map[string]any) (terms.Targets,
				[]terms.CommandText, error) {
				on, err := t.Targets(args)
				return on, nil, err
			}}
		r.tools[own], r.named[t.Name] = t, own
	}
	return r
}

// Ready implements gate.Runner.
func (r *Runner) Ready(ctx context.Context, c *terms.Call, tell func(string)) error {
	if c.Tool.Kind == Host {
		return nil
	}
	return r.next.Ready(ctx, c, tell)
}

// Run implements gate.Runner.
func (r *Runner) Run(ctx context.Context, call *gate.Running) (terms.Output, error) {
	t := call.Call.Tool
	if t.Kind != Host {
		return r.next.Run(ctx, call)
	}
	own, known := r.tools[t]
	if !known {
		return terms.Output{}, &terms.PluginError{Code: "plugin_unavailable",
			Message: fmt.Sprintf("the host has no tool %q of its own", t.Name)}
	}
	result, err := own.Do(ctx, call)
	if err != nil {
		return terms.Output{}, err
	}
	out, err := json.Marshal(result)
	return terms.Output{JSON: out}, err
}

// Call makes a call of a tool of the host, as the host.
func (r *Runner) Call(ctx context.Context, d *gate.Door, tool string, args any) terms.Answer {
	t := r.named[tool]
	if t == nil {
		return terms.Answer{Outcome: terms.Refusal, Err: fmt.Errorf("the host has no tool %q",
			tool)}
	}
	data, err := json.Marshal(args)
	if err != nil {
		return terms.Answer{Outcome: terms.Refusal, Err: err}
	}
	return d.Call(ctx, terms.Request{Source: Host, Tool: t, Arguments: data,
		Principal: terms.Principal{ID: Host, Roles: []string{}, Auth: Host}})
}
