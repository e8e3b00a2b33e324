// Command steps does many short operations, one after the other, for tests of what ends a call.
package main

import (
	"encoding/json"
	"time"

	"github.com/caponier-mcp/caponier/sdk"
)

type in struct {
	N    int    `json:"n"              doc:"How often"          min:"1" max:"9999"`
	Node string `json:"node,omitempty" doc:"The node to run on" target:"node"`
}

type asked struct {
	Mark string `json:"mark" doc:"What the question names" maxlength:"60"`
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
	), sdk.NewTool("steps_ask",
		"Asks the user, and runs the program true on a node after a yes.",
		sdk.Hints{
			Title:      "Ask first",
			Budget:     2 * time.Minute,
			ReadOnly:   true,
			Idempotent: true,
			Imports:    []string{"ask", "ssh_exec"},
			Commands:   []string{"true"},
			Runs:       "true",
		},
		func(c *sdk.Call, in asked) (o out, err error) {
			a, err := sdk.Ask(c, "go", "May "+in.Mark+" go on?", json.RawMessage(
				`{"type":"object","required":["yes"],"properties":{"yes":{"type":"boolean"}}}`))
			if err != nil || a.Action != "accept" {
				return o, err
			}
			_, err = sdk.SSHExec(c, c.Node(""), []string{"true"}, sdk.ExecOptions{})
			return out{Done: 1}, err
		},
	))
}

func main() {}
