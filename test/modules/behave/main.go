// Command behave does as it is told: host/sandbox holds it, and its likes in C, AssemblyScript and
// Rust, to one table of behaviour.
package main

import (
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/sdk"
)

type in struct {
	Do   string `json:"do"             doc:"what to do"`
	Text string `json:"text,omitempty" doc:"some text"`
	N    int    `json:"n,omitempty"    doc:"some number" min:"0" max:"10000000"`
}

type out struct {
	Text   *string `json:"text,omitempty"`
	Exit   *int    `json:"exit,omitempty"`
	Stdout *string `json:"stdout,omitempty"`
	Action string  `json:"action,omitempty"`
	N      int     `json:"n,omitempty"`

	Planned bool `json:"planned,omitempty"`
}

var (
	count = 41
	sink  [][]byte
)

func init() {
	sdk.Serve(
		"behave",
		"1.0.0",
		sdk.NewTool(
			"behave",
			"Does as it is told, for the tests of the sandbox.",
			sdk.Hints{
				Title:      "Behave",
				ReadOnly:   true,
				Idempotent: true,
				Imports:    []string{"ssh_exec", "ask"},
				Commands:   []string{"uptime"},
				Budget:     10 * time.Second,
				Runs:       "uptime -p",
			},
			behave,
		),
	)
}

func exec(c *sdk.Call, node, text string) (out, error) {
	r, err := sdk.SSHExec(c, node, []string{"uptime", "-p"}, sdk.ExecOptions{Stdin: []byte(text)})
	stdout := string(r.Stdout)
	return out{Exit: &r.Exit, Stdout: &stdout, Planned: r.Planned}, err
}

//go:noinline
func deep(n int) int {
	if n == -1 {
		return 0
	}
	return deep(n+1) + n
}

func behave(c *sdk.Call, in in) (out, error) {
	switch in.Do {
	case "echo":
		return out{Text: &in.Text}, nil
	case "exec":
		return exec(c, c.Node(""), in.Text)
	case "elsewhere":
		return exec(c, "elsewhere", in.Text)
	case "ask":
		a, err := sdk.Ask(c, "k", "m", []byte(`{"type":"object","properties":{}}`))
		return out{Action: a.Action}, err
	case "fail":
		return out{}, &sdk.Error{Code: "teapot", Message: in.Text, Suggestion: "drink coffee"}
	case "notes":
		sdk.Log(c, sdk.Warn, "a line")
		sdk.Progress(c, 1, 3, "on the way")
		return out{}, nil
	case "count":
		count++
		return out{N: count}, nil
	case "big":
		text := strings.Repeat("x", in.N)
		return out{Text: &text}, nil
	case "trap":
		panic("a trap")
	case "spin":
		for n := 0; ; n++ {
		}
	case "grow":
		for {
			sink = append(sink, []byte(strings.Repeat("x", 1<<20)))
		}
	case "deep":
		return out{N: deep(0)}, nil
	}
	return out{}, &sdk.Error{Code: "bad_input", Message: in.Do}
}

func main() {}
