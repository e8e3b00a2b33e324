// Package offline runs tools of a module without a host: what they ask for is answered from a file.
// It holds no connection, no process and no file, so that nothing which runs here reaches a node.
package offline

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/plan"
	"github.com/caponier-mcp/caponier/host/policy/input"
	"github.com/caponier-mcp/caponier/host/shell"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// New returns a door with these parts.
func New(o Options) *Door {
	d := &Door{o: o, world: newWorld(o.Answers)}
	names := o.Answers.Nodes
	if len(names) == 0 {
		names = []string{"pve1"}
	}
	var nodes []terms.Node
	for i, name := range names {
		nodes = append(nodes, terms.Node{Name: name, Cluster: "offline", Default: i == 0})
	}
	executors := map[string]terms.Executor{}
	for _, name := range abi.Operations() {
		executors[name] = executor{d}
	}
	d.Door = gate.New(gate.Options{Nodes: nodes, Decider: decider{d}, Journal: nothing{},
		Ledger: nothing{}, Planner: plan.Planner{}, Lowerer: shell.Lowerer{},
		Throttle: &fair.Refusals{}, Executors: executors, Files: d.files,
		Mode: func(context.Context) terms.Mode { return terms.Mode{} }}, held{o.Runner})
	return d
}

// files returns the digests of the local files of a call, and of those below its directories.
func (d *Door) files(c *terms.Call) (map[string]string, error) {
	all := map[string]string{}
	for _, at := range c.Targets.LocalPaths {
		for name, data := range d.o.Answers.Local {
			if name == at || strings.HasPrefix(name, at+"/") {
				all[name] = "sha256:" + sum(data)
			}
		}
	}
	return all, nil
}

// Asked returns what was asked for since the last time, in order.
func (d *Door) Asked() []Asked {
	d.mu.Lock()
	defer d.mu.Unlock()
	asked := d.asked
	d.asked = nil
	return asked
}

// nothing is a journal and a ledger that keep nothing.
type nothing struct{}

func (nothing) Intent(context.Context, terms.Record, bool) error { return nil }
func (nothing) Outcome(context.Context, terms.Record) error      { return nil }
func (nothing) Take(context.Context, *terms.Call) (terms.Counts, func(), error) {
	return terms.Counts{}, func() {}, nil
}

// decider allows what a tool declares.
type decider struct{ *Door }

func (d decider) Decide(_ context.Context, q terms.Question) (terms.Decision, error) {
	yes := terms.Decision{Allow: true, Tier: terms.Green, Revision: "offline"}
	if q.Kind != terms.KindOperation || q.Phase == terms.PhaseLookup {
		return yes, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	asked := Describe(q.Op)
	tier, why := d.declared(q)
	switch {
	case why != "":
		asked.State = refused
		d.asked = append(d.asked, asked)
		return terms.Decision{Failed: []string{"undeclared"},
			Denied: []terms.Reason{{ID: "undeclared", Msg: why}}}, nil
	case d.answers(q.Op):
		asked.State = answered
	case q.Call.Planning && tier > terms.Green:
		asked.State, yes.Tier = planned, tier
	default:
		asked.State = noAnswer
	}
	d.asked = append(d.asked, asked)
	var err error
	yes.Input, err = json.Marshal(input.Of(&q, nil))
	return yes, err
}

// declared returns the tier of an operation, and why a host would refuse it to its tool: an import
// or a command that the tool does not declare.
func (d decider) declared(q terms.Question) (tier terms.Tier, why string) {
	t := q.Call.Tool
	if !slices.Contains(t.Imports, q.Op.Import()) {
		return 0, fmt.Sprintf("%s does not declare %s among its imports (%s)", t.Name,
			q.Op.Import(), strings.Join(t.Imports, " "))
	}
	switch op := q.Op.(type) {
	case abi.SSHExec:
		return d.command(t, op.Argv)
	case abi.SSHScript:
		return terms.Red, ""
	case abi.BlobRead, abi.BlobWrite, abi.Ask, abi.ListCommands:
		return terms.Green, ""
	case abi.FileOp:
		if tier, known := fileTiers[op.File().Action]; known {
			return tier, ""
		}
	}
	return terms.Yellow, ""
}

// command returns the tier of the declared command that these words are. A command that the grammar
// does not have counts as red.
func (d decider) command(t *terms.Tool, argv []string) (tier terms.Tier, why string) {
	best := ""
	for _, entry := range t.Commands {
		if len(entry) > len(best) && matches(entry, argv) {
			best = entry
		}
	}
	switch tier = d.o.Tiers[best]; {
	case best == "" && !slices.Contains(t.Commands, terms.CallersText):
		return 0, fmt.Sprintf("%s declares no command that %q is (%s)", t.Name, argv,
			strings.Join(t.Commands, ", "))
	case tier == terms.NoTier:
		return terms.Red, ""
	}
	return tier, ""
}

// matches reports whether argv matches this entry of the command grammar: it begins with the words
// of the entry, with any segment for a placeholder in a path.
func matches(entry string, argv []string) bool {
	words := strings.Split(entry, " ")
	if len(argv) < len(words) {
		return false
	}
	for i, w := range words {
		want, got := strings.Split(w, "/"), strings.Split(argv[i], "/")
		if !slices.EqualFunc(want, got, func(x, y string) bool {
			return x == y || strings.HasPrefix(x, "{") && y != ""
		}) {
			return false
		}
	}
	return true
}

// Skeleton returns the answers that are missing in what was asked for, as YAML to be filled in: ""
// if there is none. It is one line for each key of the file, and one or two for each operation.
func Skeleton(asked []Asked) string {
	sections, seen := map[string]string{}, map[string]bool{}
	for _, a := range asked {
		section, text := a.skeleton()
		if a.State == noAnswer && !seen[section+text] {
			seen[section+text] = true
			sections[section] += text
		}
	}
	all := ""
	for _, section := range slices.Sorted(maps.Keys(sections)) {
		all += section + ":\n" + sections[section]
	}
	return all
}

func (a Asked) skeleton() (section, text string) {
	switch {
	case a.Argv != nil:
		return "commands", fmt.Sprintf("  - argv: %s\n    stdout: \"\"\n", quoted(a.Argv))
	case a.Script != "":
		return "commands", fmt.Sprintf("  - script: %s\n    stdout: \"\"\n", quoted(a.Script))
	case a.URL != "":
		return "requests", fmt.Sprintf("  - method: %s\n    url: %s\n    text: \"\"\n",
			quoted(a.Method), quoted(a.URL))
	case a.Key != "":
		return "asks", fmt.Sprintf("  - key: %s\n    content: {}\n", quoted(a.Key))
	case a.of.Moves == abi.MovesLocal:
		return "local", fmt.Sprintf("  - path: %s\n    text: \"\"\n", quoted(a.Local))
	case a.of.Action == "list":
		return "files", fmt.Sprintf("  - path: %s\n    type: dir\n", quoted(a.Path))
	case a.of.Moves == abi.MovesData:
		return "files", fmt.Sprintf("  - path: %s\n    type: missing\n", quoted(a.Path))
	}
	return "files", fmt.Sprintf("  - path: %s\n    text: \"\"\n", quoted(a.Path))
}
