package pvetest

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/sdk"
	"github.com/caponier-mcp/caponier/sdk/sdktest"
)

var example = regexp.MustCompile(`Example: (\{.*\})$`)

// CheckTools holds every tool of the plugin to what an agent and a site need of it. Budgets are in seconds, of all tools by name.
func CheckTools(t *testing.T, budgets map[string]int) {
	h := sdktest.New(t)
	down := &sdk.OpError{Code: "connection", Message: "down"}
	h.SSHExec = func(string, []string, sdk.ExecOptions) (sdk.ExecResult, error) { return sdk.ExecResult{}, down }
	h.SSHScript = func(string, string, sdk.ExecOptions) (sdk.ExecResult, error) { return sdk.ExecResult{}, down }
	h.SFTPStat = func(string, string) (sdk.FileInfo, error) { return sdk.FileInfo{}, down }
	h.SFTPList = func(string, string, int) (sdk.List, error) { return sdk.List{}, down }
	h.SFTPPut = func(string, string, string, sdk.FileOptions) (sdk.Written, error) { return sdk.Written{}, down }
	var d struct {
		Tools []struct {
			Name, Title, Description, Runs string
			InputSchema                    struct {
				Type                 string
				AdditionalProperties *bool
				Properties           map[string]map[string]any
				AnyOf, OneOf, AllOf  []any
			} `json:"input_schema"`
			Hints struct {
				ReadOnly    bool `json:"read_only"`
				Destructive bool
			}
			Imports  []string
			BudgetMS int `json:"budget_ms"`
		}
	}
	if err := json.Unmarshal(h.Describe(), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Tools) != len(budgets) {
		t.Errorf("%d tools, want %d", len(d.Tools), len(budgets))
	}
	for _, tool := range d.Tools {
		fail := func(format string, args ...any) { t.Helper(); t.Errorf(tool.Name+": "+format, args...) }
		if tool.BudgetMS != 1000*budgets[tool.Name] {
			fail("budget of %d ms, want %d s", tool.BudgetMS, budgets[tool.Name])
		}
		if len(tool.Title) < 8 || len(tool.Runs) < 8 || len(tool.Imports) == 0 || len(tool.Description) < 40 {
			fail("needs a title, a line on what it runs, its imports and a description that an agent can use")
		}
		s := tool.InputSchema
		if s.Type != "object" || s.AdditionalProperties == nil || *s.AdditionalProperties || len(s.AnyOf)+len(s.OneOf)+len(s.AllOf) > 0 {
			fail("its input must be one closed object")
		}
		if tool.Hints.ReadOnly && tool.Hints.Destructive {
			fail("reads only and destroys")
		}
		marks := map[string]string{"vmid": "vmid", "guest_id": "vmid", "node": "node", "service": "service", "local_path": "local_path", "container_path": "guest_path", "host_path": "remote_path", "confirmed": ""}
		for name, p := range s.Properties {
			if doc, _ := p["description"].(string); len(doc) < 4 {
				fail("argument %s has no description", name)
			}
			if mark := marks[name]; mark != "" && p["x-caponier-target"] != mark && tool.Name != "get_backups" {
				fail("argument %s is marked %v, want %s", name, p["x-caponier-target"], mark)
			}
			if name == "command" && p["x-caponier-target"] != "command" && p["x-caponier-target"] != "guest_command" {
				fail("its command is not marked")
			}
			if name == "confirmed" && p["x-caponier-confirm"] != true {
				fail("its confirmation is not marked")
			}
			if (name == "vmid" || name == "guest_id") && (p["minimum"] != 100.0 || p["maximum"] != 999999999.0) {
				fail("%s takes %v to %v", name, p["minimum"], p["maximum"])
			}
		}
		for _, never := range []string{"migrate", "move", "clone"} {
			if strings.Contains(tool.Name, never) {
				fail("no tool migrates a guest, moves a disk or clones")
			}
		}
		m := example.FindStringSubmatch(tool.Description)
		if m == nil {
			fail("its description has no example at its end")
			continue
		}
		out, err := h.Call(tool.Name, m[1])
		if err != nil {
			fail("its example does not fit its own schema: %v", err)
		} else if out.Error == nil || out.Error.Code != "connection" || !strings.Contains(out.Error.Suggestion, "reachable") || out.Error.Suggestion == "" {
			fail("of a node that is down it says %+v", out.Error)
		}
	}
}
