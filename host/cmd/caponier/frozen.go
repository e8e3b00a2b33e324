package main

import (
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/freeze"
	"github.com/caponier-mcp/caponier/host/gate"
)

// frozen decides what core/check/freeze.rego decides as soon as policy reads input.mode.freezes.
func frozen(l freeze.List) func(gate.Question) (string, bool) {
	return func(q gate.Question) (string, bool) {
		c := q.Call
		nodes := append(named(q), c.Targets.Nodes...)
		if q.Op != nil {
			nodes = append(nodes, q.Op.NodeName())
		}
		for _, z := range l.Mode() {
			switch {
			case z.Kind == "principal" && z.Name != c.Principal.ID:
			case z.Kind == "tool" && z.Name != c.Tool.Name:
			case z.Kind == "node" && !slices.Contains(nodes, z.Name):
			default:
				return z.Reason, true
			}
		}
		return "", false
	}
}

// named lists what could be a node's name in the commands of a question.
func named(q gate.Question) (names []string) {
	commands := q.Call.Commands
	if q.Cmd != nil {
		commands = append(slices.Clone(commands), *q.Cmd)
	}
	for _, cmd := range commands {
		for _, simple := range cmd.Calls {
			for _, w := range simple.Argv {
				split := func(r rune) bool { return strings.ContainsRune("/:=@,. ", r) }
				names = append(names, strings.FieldsFunc(w, split)...)
			}
		}
	}
	return names
}
