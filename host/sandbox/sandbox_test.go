package sandbox

import (
	"context"
	"fmt"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"strings"
	"testing"
)

type object = map[string]any

func TestGoModule(t *testing.T) {
	h := newHost(t, Options{CacheDir: compileCache})
	tool := h.add(goModule(t, "echo"))
	a := h.call(tool, object{"text": "héllo", "times": 3})
	want(t, a, "")
	if !strings.Contains(string(a.Output.JSON), `"structured":{"text":"HÉLLO","times":3}`) ||
		len(h.executed) != 3 {
		t.Errorf("output %s after %v", a.Output.JSON, h.executed)
	}
	if a.Output.Notes.CPUTicks < 10_000 {
		t.Errorf("%d ticks were counted, which is too few for a Go module", a.Output.Notes.CPUTicks)
	}
}

func TestDescribe(t *testing.T) {
	d, imports, err := describeModule(context.Background(), goModule(t, "echo"), "")
	if err != nil {
		t.Fatal(err)
	}
	head := fmt.Sprintf(`{"abi":1,"minor":%d,"name":"echo"`, abi.Minor)
	if !strings.HasPrefix(string(d), head) || len(imports) != 1 || imports[0] != "ssh_exec" {
		t.Errorf("described as %s with imports %v", d, imports)
	}
}
