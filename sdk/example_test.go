package sdk_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/sdk"
	"github.com/caponier-mcp/caponier/sdk/internal/imports"
	"github.com/caponier-mcp/caponier/sdk/sdktest"
)

type uptimeIn struct {
	Node string `json:"node,omitempty" doc:"Node, if not the default" target:"node"`
}

type uptimeOut struct {
	Node string `json:"node"`
	Says string `json:"says" doc:"What uptime -p prints"`
}

// Text returns the text for people.
func (o uptimeOut) Text() string { return o.Node + ": " + o.Says }

func uptime(c *sdk.Call, in uptimeIn) (uptimeOut, error) {
	node := c.Node(in.Node) // the default node when in.Node is empty
	r, err := sdk.SSHExec(c, node, []string{"uptime", "-p"},
		sdk.ExecOptions{Timeout: 5 * time.Second})
	if err != nil {
		return uptimeOut{}, err // a refusal or a lost connection: return it as it is
	}
	if r.Exit != 0 {
		return uptimeOut{}, &sdk.Error{
			Code:       "failed",
			Message:    fmt.Sprintf("uptime on %s: exit code %d", node, r.Exit),
			Suggestion: "Check that uptime is installed there.",
		}
	}
	return uptimeOut{node, strings.TrimSpace(string(r.Stdout))}, nil
}

// A tool declares what it needs: the operations and the commands. The host refuses anything else.
func ExampleNewTool() {
	tool := sdk.NewTool("node_uptime", "Report how long a node has been up. Example: {}",
		sdk.Hints{
			Title:    "Uptime of a node",
			ReadOnly: true,
			Imports:  []string{"ssh_exec"},
			Commands: []string{"uptime"},
			Budget:   10 * time.Second,
			Runs:     "uptime -p",
		}, uptime)
	_ = tool // a plugin passes it to sdk.Serve in an init function
}

func TestTheToolOfTheExample(t *testing.T) {
	imports.Reset()
	sdk.Serve("uptime", "1.0.0", sdk.NewTool("node_uptime", "Doc.",
		sdk.Hints{Imports: []string{"ssh_exec"}, Commands: []string{"uptime"}}, uptime))
	h := sdktest.New(t)
	h.SSHExec = func(node string, argv []string, _ sdk.ExecOptions) (sdk.ExecResult, error) {
		return sdk.ExecResult{Stdout: []byte("up 3 days\n")}, nil
	}
	got, err := h.Call("node_uptime", `{}`)
	if err != nil || !strings.Contains(fmt.Sprint(got), "up 3 days") {
		t.Errorf("%v, %v", got, err)
	}
}
