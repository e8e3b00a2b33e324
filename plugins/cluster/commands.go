package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

var listAllowedCommandsTool = sdk.NewTool("list_allowed_commands",
	"Say which commands you may run on nodes. Without word: how many of each program; with one: "+
		"each command, its words, its tier, and whether a person is asked. Example: "+
		"{\"word\":\"systemctl\"}",
	sdk.Hints{
		Title:      "List your commands",
		ReadOnly:   true,
		Idempotent: true,
		Imports:    []string{"list_commands"},
		Budget:     20 * time.Second,
		Runs:       "nothing on a node: policy answers",
	},
	listAllowedCommands)

type commandsIn struct {
	Word string `json:"word,omitempty" doc:"Program, or program and sub-command" maxlen:"128"`
	Node string `json:"node,omitempty" doc:"Only on this node" maxlen:"128"`
}

type commandsOut struct {
	pve.Reply
	sdk.CommandList
}

func listAllowedCommands(c *sdk.Call, in commandsIn) (commandsOut, error) {
	list, err := sdk.ListCommands(c, in.Node, in.Word)
	if err != nil {
		return commandsOut{}, err
	}
	return commandsOut{pve.Human(tellCommands(list, in)), list}, nil
}

func tellCommands(list sdk.CommandList, in commandsIn) string {
	var b strings.Builder
	for _, t := range list.Tools {
		fmt.Fprintf(&b, "With %s on %s:\n", t.Tool, strings.Join(t.Nodes, ", "))
	}
	if list.MoreNodes > 0 {
		fmt.Fprintf(&b, "(%d nodes are not looked at: name one in node.)\n", list.MoreNodes)
	}
	if len(list.Tools) == 0 {
		return nothing(in)
	}
	for _, p := range list.Programs {
		b.WriteString(p.Program + ":")
		for _, n := range []struct {
			count int
			tier  string
		}{{p.Green, "green"}, {p.Yellow, "yellow"}, {p.Red, "red"}} {
			if n.count > 0 {
				fmt.Fprintf(&b, " %d %s", n.count, n.tier)
			}
		}
		b.WriteByte('\n')
	}
	for _, x := range list.Commands {
		fmt.Fprintf(&b, "%s %s\n  %s", x.Command, x.Takes, x.Tier)
		if x.Approval {
			b.WriteString(", a person is asked")
		}
		if x.Piped {
			b.WriteString(", only behind a pipe")
		}
		if len(list.Tools) > 1 || len(x.Nodes) < len(list.Tools[0].Nodes) {
			fmt.Fprintf(&b, ", with %s on %s", strings.Join(x.Tools, ", "),
				strings.Join(x.Nodes, ", "))
		}
		b.WriteByte('\n')
	}
	if list.MoreCommands > 0 {
		fmt.Fprintf(&b, "%d more: give a sub-command too.\n", list.MoreCommands)
	}
	if len(list.Programs) > 0 {
		b.WriteString("Give a program as word to see its commands.\n")
	}
	return b.String()
}

func nothing(in commandsIn) string {
	at := ""
	if in.Node != "" {
		at = fmt.Sprintf(" on node %q", in.Node)
	}
	if in.Word == "" {
		return "You may run no commands by their text" + at + "."
	}
	return fmt.Sprintf("You may run no command with %q in its name%s. Leave word out for all "+
		"programs.", in.Word, at)
}
