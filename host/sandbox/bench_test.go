package sandbox

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// cpu reports the processor time of the whole process for each iteration, garbage collection and
// refilling included. Unlike elapsed time it does not depend on the load of the machine.
func cpu(b *testing.B) func() {
	b.ResetTimer()
	began := cpuTime()
	return func() { b.ReportMetric(float64(cpuTime()-began)/float64(b.N), "cpu-ns/op") }
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	syscall.Getrusage(0, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkInstance makes an instance from the template, puts nothing in it and throws it away.
func BenchmarkInstance(b *testing.B) {
	h := newHost(b, Options{Warm: -1})
	tool := h.add(goModule(b, "echo"))
	want(b, h.call(tool, object{}), "")
	t := h.plugin(tool).tmpl
	defer cpu(b)()
	for b.Loop() {
		in, err := t.instantiate(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		in.close()
	}
}

var sizes = []int{1 << 10, 64 << 10}

// BenchmarkCall is a whole call of the echo plugin, with decoding, decision and a fresh instance,
// beside the same call of one reused instance in plain wazero: as it is, and with wazero's own way
// of stopping instances.
func BenchmarkCall(b *testing.B) {
	for _, n := range sizes {
		text := strings.Repeat("x", n)
		for name, warm := range map[string]int{"cold": -1, "warm": 4} {
			b.Run(fmt.Sprintf("fresh/%s/%dKiB", name, n>>10), func(b *testing.B) {
				h := newHost(b, Options{Warm: warm})
				tool := h.add(goModule(b, "echo"))
				want(b, h.call(tool, object{}), "")
				defer cpu(b)()
				for b.Loop() {
					if a := h.call(tool, object{"text": text}); a.Err != nil {
						b.Fatal(a.Err)
					}
				}
			})
		}
		rewrite := func(w []byte) []byte {
			_, r, err := load(w, abi.Operations(), 64<<20)
			if err != nil {
				b.Fatal(err)
			}
			return r
		}
		ways := map[string]func([]byte) []byte{
			"raw": nil, "closeOnContext": nil, "rewritten": rewrite,
		}
		for name, m := range ways {
			b.Run(fmt.Sprintf("reused/%s/%dKiB", name, n>>10), func(b *testing.B) {
				call := reused(b, goModule(b, "echo"), m, name == "closeOnContext")
				input := fmt.Appendf(nil, `{"abi":1,"kind":"tool","name":"echo",`+
					`"args":{"text":%q},"call":{"id":"x"},"nodes":[]}`, text)
				defer cpu(b)()
				for b.Loop() {
					call(input)
				}
			})
		}
	}
}

// reused is plain wazero with one instance for all calls.
func reused(
	b *testing.B,
	wasm []byte,
	rewrite func([]byte) []byte,
	closeOnContext bool,
) func([]byte) {
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx,
		wazero.NewRuntimeConfig().WithCoreFeatures(features).WithCloseOnContextDone(closeOnContext))
	b.Cleanup(func() { rt.Close(ctx) })
	if err := register(ctx, rt, hostFuncs()); err != nil {
		b.Fatal(err)
	}
	env := environment{
		newCPUScheduler(), time.Now, sleep, strings.NewReader(strings.Repeat("r", 1<<20)), nil,
	}
	ctx = context.WithValue(ctx, callKey{}, &call{door: noDoor{}, env: &env})
	var mod api.Module
	if rewrite == nil {
		var err error
		if mod, err = rt.InstantiateWithConfig(ctx, wasm,
			wazero.NewModuleConfig().WithStartFunctions("_initialize")); err != nil {
			b.Fatal(err)
		}
	} else {
		m, rewritten, err := load(wasm, abi.Operations(), 64<<20)
		if err != nil {
			b.Fatal(err)
		}
		compiled, err := rt.CompileModule(ctx, rewritten)
		if err != nil {
			b.Fatal(err)
		}
		t, _, err := newTemplate(ctx, rt, &source{m, compiled}, &env, 64<<20, 0)
		if err != nil {
			b.Fatal(err)
		}
		in, err := t.instantiate(ctx)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { in.close(); t.image.Close() })
		mod = in.mod
	}
	f := mod.ExportedFunction("caponier_v1_call")
	return func(input []byte) {
		c := &call{door: noDoor{}, env: &env, input: input, max: 1 << 24}
		var stack [1]uint64
		if err := f.CallWithStack(context.WithValue(ctx, callKey{}, c), stack[:]); err != nil ||
			stack[0] != 0 ||
			c.output.n == 0 {
			b.Fatal(err, stack[0])
		}
	}
}

// BenchmarkOperation is one operation of a call that does many, with a decision that allows and an
// executor that does nothing.
func BenchmarkOperation(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) {
			h := newHost(b, Options{})
			tool := h.add(goModule(b, "echo"))
			tool.Budget = time.Hour
			want(b, h.call(tool, object{}), "")
			text := strings.Repeat("x", n)
			defer cpu(b)()
			if a := h.call(tool, object{"text": text, "times": b.N}); a.Err != nil ||
				a.Output.Code != 0 {
				b.Fatal(a.Err, string(a.Output.JSON))
			}
		})
	}
}
