// Package pvetest scripts a Proxmox node for the tests of plugins: what each command prints, in
// order.
package pvetest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/sdk"
	"github.com/caponier-mcp/caponier/sdk/sdktest"
	"github.com/google/jsonschema-go/jsonschema"
)

// Node answers ssh_exec from a script. A command that the script does not know, or knows no further
// answer of, fails the test.
type Node struct {
	*sdktest.Host
	Ran    []string // node and words of each command, joined by spaces
	t      testing.TB
	script map[string][]sdk.ExecResult
}

// New makes a node. More than one answer to a command are given in turn, and the last one again and
// again.
func New(t testing.TB, script map[string][]sdk.ExecResult) *Node {
	n := &Node{Host: sdktest.New(t), t: t, script: map[string][]sdk.ExecResult{}}
	t.Cleanup(func() { Note(n.Host) })
	for command, answers := range script {
		n.script[command] = answers
	}
	n.SSHExec = func(node string, argv []string, _ sdk.ExecOptions) (sdk.ExecResult, error) {
		command := node + " " + strings.TrimSuffix(strings.Join(argv, " "), " --output-format json")
		n.Ran = append(n.Ran, command)
		answers := n.script[command]
		if len(answers) == 0 {
			t.Errorf("the script has no answer to %q", command)
			return sdk.ExecResult{}, &sdk.OpError{Code: "failed", Message: "not in the script"}
		}
		if len(answers) > 1 {
			n.script[command] = answers[1:]
		}
		return answers[0], nil
	}
	return n
}

// Says is a command that succeeds with this output; Fails is one that fails.
func Says(stdout ...string) (all []sdk.ExecResult) {
	for _, s := range stdout {
		all = append(all, sdk.ExecResult{Stdout: []byte(s)})
	}
	return all
}

func Fails(exit int, stderr string) []sdk.ExecResult {
	return []sdk.ExecResult{{Exit: exit, Stderr: []byte(stderr)}}
}

// Do calls a tool; the structured result is decoded, empty when the tool failed.
func (n *Node) Do(tool, args string) (sdktest.Output, map[string]any) {
	n.t.Helper()
	out, err := n.Call(tool, args)
	if err != nil {
		n.t.Fatalf("%s %s: %v", tool, args, err)
	}
	m := map[string]any{}
	if len(out.Structured) > 0 {
		if err := json.Unmarshal(out.Structured, &m); err != nil {
			n.t.Fatal(err)
		}
	}
	if out.Error == nil {
		Fits(n.t, n.Describe(), tool, out.Structured)
	}
	return out, m
}

// Fits fails the test unless a result fits the output schema that a description has for its tool.
func Fits(t testing.TB, description []byte, tool string, structured []byte) {
	t.Helper()
	var d struct {
		Tools []struct {
			Name   string
			Schema *jsonschema.Schema `json:"output_schema"`
		}
	}
	if err := json.Unmarshal(description, &d); err != nil {
		t.Fatal(err)
	}
	for _, is := range d.Tools {
		if is.Name != tool {
			continue
		}
		if is.Schema == nil {
			t.Fatalf("%s has no output schema", tool)
		}
		rs, err := is.Schema.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(structured, &v); err != nil {
			t.Fatal(err)
		}
		if err := rs.Validate(v); err != nil {
			t.Errorf("%s: %s does not fit its output schema: %v", tool, structured, err)
		}
		return
	}
	t.Errorf("there is no tool %s", tool)
}

// Changes are the commands that ran and are not reads of the API.
func (n *Node) Changes() (changes []string) {
	for _, c := range n.Ran {
		if !strings.Contains(c, " pvesh get ") {
			changes = append(changes, c)
		}
	}
	return changes
}
