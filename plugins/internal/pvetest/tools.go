package pvetest

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/sdk"
	"github.com/caponier-mcp/caponier/sdk/sdktest"
)

var example = regexp.MustCompile(`Example: (\{.*\})$`)

// nodeDown is a host that knows what it recorded itself, and whose node is down.
func nodeDown(t *testing.T) *sdktest.Host {
	h := sdktest.New(t)
	down := &sdk.OpError{Code: "connection", Message: "down"}
	h.SSHExec = func(string, []string, sdk.ExecOptions) (sdk.ExecResult,
		error) {
		return sdk.ExecResult{}, down
	}
	h.SSHScript = func(string, string, sdk.ExecOptions) (sdk.ExecResult,
		error) {
		return sdk.ExecResult{}, down
	}
	h.SFTPStat = func(string, string) (sdk.FileInfo, error) { return sdk.FileInfo{}, down }
	h.SFTPList = func(string, string, int) (sdk.List, error) { return sdk.List{}, down }
	h.SFTPPut = func(string, string, string, sdk.FileOptions) (sdk.Written,
		error) {
		return sdk.Written{}, down
	}
	h.LocalFiles = []sdk.LocalFile{{Path: "site/index.html", SHA256: "ab"}}
	h.ListCommands = func(string, string) (list sdk.CommandList, err error) { return list, nil }
	h.UndoSteps = func(string) (string, []sdk.UndoStep, error) {
		step := sdk.UndoStep{Node: "pve1", Did: "it", Argv: []string{"pct", "start", "101"}}
		return "a_tool", []sdk.UndoStep{step}, nil
	}
	h.Snapshots = func(bool) ([]sdk.Snapshot, error) { return nil, nil }
	return h
}

// CheckExamples calls each tool of the plugin as its description says, on a node that is down: it
// must say so, and what helps. What else every tool must have is held by test/tools_test.go.
func CheckExamples(t *testing.T) {
	h := nodeDown(t)
	// what these are asked for, the host knows itself
	answers := []string{"list_commands", "snapshots"}
	var d struct {
		Tools []struct {
			Name, Description string
			Imports           []string
			Budget            int `json:"budget_ms"`
			Hints             struct {
				ReadOnly bool `json:"read_only"`
			}
		}
	}
	if err := json.Unmarshal(h.Describe(), &d); err != nil || len(d.Tools) == 0 {
		t.Fatalf("%d tools, %v", len(d.Tools), err)
	}
	for _, tool := range d.Tools {
		m := example.FindStringSubmatch(tool.Description)
		if m == nil {
			t.Errorf("%s: its description has no example at its end", tool.Name)
			continue
		}
		asked := len(h.Requests)
		out, err := h.Call(tool.Name, m[1])
		// every command ends: what only reads within 15 seconds, others within the tool's budget
		for _, q := range h.Requests[asked:] {
			if !strings.HasPrefix(q.Import, "ssh_") {
				continue
			}
			var r struct {
				Timeout int `json:"timeout_ms"`
			}
			if err := json.Unmarshal(q.JSON, &r); err != nil ||
				q.Import == "ssh_exec" && tool.Hints.ReadOnly && r.Timeout != 15_000 ||
				r.Timeout <= 0 || r.Timeout > tool.Budget {
				t.Errorf("%s: %s may take %d ms of the tool's %d", tool.Name, q.JSON, r.Timeout,
					tool.Budget)
			}
		}
		if err != nil {
			t.Errorf("%s: its example does not fit its own schema: %v", tool.Name, err)
		} else if len(tool.Imports) == 1 && slices.Contains(answers, tool.Imports[0]) {
			continue
		} else if out.Error == nil || out.Error.Code != "connection" ||
			!strings.Contains(out.Error.Suggestion, "reachable") {
			t.Errorf("%s: of a node that is down it says %+v", tool.Name, out.Error)
		}
	}
}
