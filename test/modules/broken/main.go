// Broken is a plugin that fails in the ways in which plugins fail: it traps, loops, eats memory,
// exits, and asks for what its tool did not declare.
package main

import (
	"os"
	"slices"
	"time"

	"github.com/caponier-mcp/caponier/sdk"
)

type in struct {
	Node string `json:"node,omitempty" doc:"The node to run on" target:"node"`
}

type out struct {
	Answer string `json:"answer"`
}

func (o out) Text() string { return o.Answer }

func tool(name string, imports []string, do func(*sdk.Call, in) (string, error)) sdk.Tool {
	var commands []string
	if slices.Contains(imports, "ssh_exec") {
		commands = []string{"uptime"}
	}
	return sdk.NewTool(
		name,
		"Fails on purpose: "+name+" is for the tests of the host.",
		sdk.Hints{Title: name, Imports: imports, Commands: commands, Budget: time.Second,
			Runs: "nothing"},
		func(c *sdk.Call, in in) (out, error) {
			s, err := do(c, in)
			return out{s}, err
		},
	)
}

var sink [][]byte

func init() {
	stat := []string{"sftp_stat"}
	sdk.Serve("broken", "1.0.0",
		tool("broken_trap", stat, func(*sdk.Call, in) (string, error) {
			var p *in
			return p.Node, nil
		}),
		tool("broken_loop", stat, func(*sdk.Call, in) (string, error) {
			for i := 0; ; i++ {
				if i == -1 {
					return "", nil
				}
			}
		}),
		tool("broken_memory", stat, func(*sdk.Call, in) (string, error) {
			for {
				sink = append(sink, make([]byte, 1<<20))
			}
		}),
		tool("broken_exit", []string{"ssh_exec"}, func(*sdk.Call, in) (string, error) {
			os.Exit(3)
			return "", nil
		}),
		tool("broken_undeclared", stat, func(c *sdk.Call, in in) (string, error) {
			_, err := sdk.SSHExec(c, c.Node(in.Node), []string{"hostname"}, sdk.ExecOptions{})
			return "swallowed", sdkIgnore(err)
		}),
		tool("broken_stats", stat, func(c *sdk.Call, in in) (string, error) {
			_, err := sdk.SFTPStat(c, c.Node(in.Node), "/etc/hosts")
			return "looked", err
		}),
	)
}

// sdkIgnore is a plugin that pretends that nothing happened.
func sdkIgnore(error) error { return nil }

func main() {}
