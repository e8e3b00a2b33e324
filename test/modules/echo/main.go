// Command echo is a plugin for the tests of the sandbox.
package main

import (
	"strings"

	"github.com/caponier-mcp/caponier/sdk"
)

type echoIn struct {
	Text string `json:"text,omitempty" doc:"what to give back"`

	Times int `json:"times,omitempty" doc:"how often it goes through the host" min:"0" max:"100000"`
}

type echoOut struct {
	Text  string `json:"text"`
	Times int    `json:"times"`
}

func init() {
	sdk.Serve(
		"echo",
		"1.0.0",
		sdk.NewTool(
			"echo",
			"Gives back its text, in upper case.",
			sdk.Hints{
				ReadOnly: true,
				Imports:  []string{"ssh_exec"},
				Commands: []string{"cat"},
				Runs:     "true",
			},
			echo,
		),
	)
}

func echo(c *sdk.Call, in echoIn) (echoOut, error) {
	for range in.Times {
		r, err := sdk.SSHExec(c, c.Node(""), []string{"cat"},
			sdk.ExecOptions{Stdin: []byte(in.Text)})
		if err != nil {
			return echoOut{}, err
		}
		if string(r.Stdout) != in.Text {
			return echoOut{}, &sdk.Error{
				Code: "changed", Message: "the host gave back something else",
			}
		}
	}
	return echoOut{strings.ToUpper(in.Text), in.Times}, nil
}

func main() {}
