// Bench is the smallest useful plugin: one operation that does nothing, to measure everything
// around it.
package main

import (
	"time"

	"github.com/caponier-mcp/caponier/sdk"
)

type in struct {
	Node string `json:"node,omitempty" doc:"The node to run on" target:"node"`
}

type out struct {
	Exit int `json:"exit"`
}

func init() {
	sdk.Serve(
		"bench",
		"1.0.0",
		sdk.NewTool(
			"bench_true",
			"Runs the program true on a node, which does nothing.",
			sdk.Hints{
				Title:      "True",
				Budget:     30 * time.Second,
				ReadOnly:   true,
				Idempotent: true,
				Imports:    []string{"ssh_exec"},
				Commands:   []string{"true"},
				Runs:       "true",
			},
			func(c *sdk.Call, in in) (out, error) {
				res, err := sdk.SSHExec(c, c.Node(in.Node), []string{"true"}, sdk.ExecOptions{})
				return out{res.Exit}, err
			},
		),
		sdk.NewTool(
			"bench_nothing",
			"Does nothing at all, not even an operation.",
			sdk.Hints{
				Title:      "Nothing",
				Budget:     30 * time.Second,
				ReadOnly:   true,
				Idempotent: true,
				Imports:    []string{"ssh_exec"},
				Commands:   []string{"true"},
				Runs:       "nothing",
			},
			func(c *sdk.Call, in in) (out, error) { return out{}, nil },
		),
	)
}

func main() {}
