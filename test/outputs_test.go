package test

import (
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var shipped = sync.OnceValues(func() (map[string]*terms.Tool, error) {
	lock, err := plugin.Load("../plugins.lock")
	if err != nil {
		return nil, err
	}
	all := map[string]*terms.Tool{}
	for _, tool := range lock.Tools() {
		all[tool.Name] = tool
	}
	return all, nil
})

// withSchemas has hosts list output schemas.
func withSchemas(t *testing.T) { t.Setenv("CAPONIER_TOOLS_OUTPUT_SCHEMAS", "true") }

// keepsItsPromise holds an answer of a shipped tool to the tool's output schema: a success has
// structured content that fits, and an error has none. Without [withSchemas] nothing has any.
func keepsItsPromise(t *testing.T, name string, res *mcp.CallToolResult) {
	t.Helper()
	all, err := shipped()
	must(t, err)
	tool := all[name]
	if tool == nil { // of a test
		return
	}
	if tool.ValidateOutput == nil {
		t.Fatalf("%s has no output schema", name)
	}
	if os.Getenv("CAPONIER_TOOLS_OUTPUT_SCHEMAS") == "" {
		if res.StructuredContent != nil {
			t.Errorf("%s: structured content, which nobody asked for", name)
		}
		return
	}
	if res.IsError || res.StructuredContent == nil {
		if !res.IsError || res.StructuredContent != nil {
			t.Errorf("%s: isError %v, structured content %v", name, res.IsError,
				res.StructuredContent)
		}
		return
	}
	data, err := json.Marshal(res.StructuredContent)
	must(t, err)
	var v any
	must(t, json.Unmarshal(data, &v))
	if err := tool.ValidateOutput(v); err != nil {
		t.Errorf("%s: %v: %.2000s", name, err, data)
	}
}

// What a tool returns where its output is too long, and where a secret in it is masked, fits its
// output schema, and is marked.
func TestCutAndMaskedResultsFitTheOutputSchema(t *testing.T) {
	withSchemas(t)
	s := newSite(t)
	session := s.stdio(t)
	for command, c := range map[string]struct{ want, mark string }{
		"seq 1 20000": {"characters left out", `"truncated":true`},
		`printf -- '-----BEGIN %s KEY-----\nMIIA\n-----END %s KEY-----\n' PRIVATE PRIVATE`: {
			"[caponier:masked:private_key]", `"truncated":false`},
	} {
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{
			Name:      "proxmox_container_exec_command",
			Arguments: map[string]any{"vmid": 101, "command": command}})
		must(t, err)
		keepsItsPromise(t, "proxmox_container_exec_command", res)
		got, err := json.Marshal(res.StructuredContent)
		must(t, err)
		if !strings.Contains(string(got), c.want) || !strings.Contains(string(got), c.mark) {
			t.Errorf("%s: %.500s; want %s and %s", command, got, c.want, c.mark)
		}
	}
}
