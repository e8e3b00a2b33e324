// Command steps does many short operations, one after the other, for tests of what ends a call.
package main

import (
	"time"

	"github.com/caponier-mcp/caponier/sdk"
)

type in struct {
	N    int    `json:"n"              doc:"How often"          min:"1" max:"9999"`
	Node string `json:"node,omitempty" doc:"The node to run on" target:"node"`
}

type out struct {
	Done int `json:"done"`
}

func init() {
	sdk.Serve("steps", "1.0.0", sdk.NewTool("steps_run",
		"Runs the program true on a node several times.",
		sdk.Hints{
			Title:      "Steps",
			Budget:     2 * time.Minute,
			ReadOnly:   true,
			Idempotent: true,
			Imports:    []string{"ssh_exec"},
			Commands:   []string{"true"},
			Runs:       "true",
		},
		func(c *sdk.Call, in in) (o out, err error) {
			for ; o.Done < in.N && err == nil; o.Done++ {
				_, err = sdk.SSHExec(c, c.Node(in.Node), []string{"true"}, sdk.ExecOptions{})
			}
			return o, err
		},
	))
}

func main() {}
