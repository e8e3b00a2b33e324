package sandbox

import (
	"context"
	"strings"
	"testing"
)

type object = map[string]any

func TestGoGuest(t *testing.T) {
	h := newHost(t, Options{})
	tool := h.add(goGuest(t, "echo"))
	a := h.call(tool, object{"text": "héllo", "times": 3})
	want(t, a, "")
	if !strings.Contains(string(a.Output.JSON), `"structured":{"text":"HÉLLO","times":3}`) || len(h.executed) != 3 {
		t.Errorf("output %s after %v", a.Output.JSON, h.executed)
	}
	if a.Output.Notes.CPUTicks < 10_000 {
		t.Errorf("%d ticks were counted, which is too few for a Go guest", a.Output.Notes.CPUTicks)
	}
}

func TestDescribe(t *testing.T) {
	d, imports, err := Describe(context.Background(), goGuest(t, "echo"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(d), `{"abi":1,"name":"echo"`) || len(imports) != 1 || imports[0] != "ssh_exec" {
		t.Errorf("described as %s with imports %v", d, imports)
	}
}

func BenchmarkInstance(b *testing.B) {
	h := newHost(b, Options{Warm: -1})
	tool := h.add(goGuest(b, "echo"))
	want(b, h.call(tool, object{}), "")
	p := h.box.plugin(tool.Plugin.Digest)
	b.ResetTimer()
	for b.Loop() {
		in, err := p.take(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		in.close()
	}
}

func BenchmarkCall(b *testing.B) {
	h := newHost(b, Options{})
	tool := h.add(goGuest(b, "echo"))
	text := strings.Repeat("x", 1024)
	want(b, h.call(tool, object{"text": text}), "")
	for b.Loop() {
		if a := h.call(tool, object{"text": text}); a.Err != nil {
			b.Fatal(a.Err)
		}
	}
}
