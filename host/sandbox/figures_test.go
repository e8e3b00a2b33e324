package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/tetratelabs/wazero"
)

// inTurn runs some ways of doing the same n times in turn, and returns the median time of each.
// Other load on the machine slows them all.
func inTurn(n int, ways ...func()) []float64 {
	took := make([][]time.Duration, len(ways))
	for range n {
		for k, way := range ways {
			began := time.Now()
			way()
			took[k] = append(took[k], time.Since(began))
		}
	}
	var medians []float64
	for _, d := range took {
		slices.Sort(d)
		medians = append(medians, float64(d[len(d)/2]))
	}
	return medians
}

// echoing reads its input and gives it back: nothing but the ABI.
func echoing() module {
	return module{
		memory: []byte{1, 0, 16},
		imports: []imported{
			output, {module: abiModule, name: "input_len"}, {module: abiModule, name: "input_read"},
		},
		call: op(c32(1024), c32(1024), callf(1), callf(2), callf(0)),
	}
}

// importing calls an import 100,000 times.
func importing() module {
	return module{
		imports: []imported{output, {module: abiModule, name: "input_len"}},
		globals: []byte{1, typeI32, 1, 0x41, 0, 0x0b},
		call: op(c32(0), 0x24, 0, 0x03, 0x40, callf(1), 0x1a, 0x23, 0, c32(1), 0x6a, 0x24, 0, 0x23,
			0, c32(100_000), 0x48, 0x0d, 0, 0x0b, ok()),
	}
}

// run returns a function that calls a plugin in a fresh instance, without the door.
func run(b *testing.B, h *host, wasm, input []byte) func() {
	tool := h.add(wasm)
	c := &terms.Call{ID: "x", Tool: tool}
	c.Args.JSON = input
	return func() {
		if _, err := h.box.Run(context.Background(), &gate.Running{Call: c}); err != nil {
			b.Fatal(err)
		}
	}
}

// native is what the echo plugin does with its input, in the host.
func native(b *testing.B, input []byte) func() {
	return func() {
		var in struct {
			ABI        int
			Kind, Name string
			Args       json.RawMessage
			Call       struct {
				ID         string `json:"id"`
				DeadlineMS int64  `json:"deadline_ms"`
			}
			Nodes []abi.Node
		}
		var args struct{ Text string }
		if err := json.Unmarshal(input, &in); err != nil {
			b.Fatal(err)
		}
		if err := json.Unmarshal(in.Args, &args); err != nil {
			b.Fatal(err)
		}
		text, err := json.Marshal(struct{ Text string }{strings.ToUpper(args.Text)})
		if err == nil {
			_, err = json.Marshal(struct {
				Content    []struct{ Type, Text string }
				Structured json.RawMessage
			}{[]struct{ Type, Text string }{{"text", string(text)}}, text})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFigures reports ratios of two things that are done in
// turn, most to plain wazero with one instance and nothing around it.
func BenchmarkFigures(b *testing.B) {
	text := strings.Repeat("x", 1024)
	args := fmt.Appendf(nil, `{"text":%q}`, text)
	input := fmt.Appendf(nil,
		`{"abi":1,"kind":"tool","name":"echo","args":%s,"call":{"id":"x"},"nodes":[]}`, args)
	// says only that it is to be rewritten: see reused
	rewritten := func([]byte) []byte { return nil }
	echo := goModule(b, "echo")
	b.Run("abi-echo", func(b *testing.B) {
		h := newHost(b, Options{})
		m := inTurn(
			2000,
			func() {},
			reusedAs(b, echoing().bytes(), nil, input),
			reusedAs(b, echoing().bytes(), rewritten, input),
			run(b, h, echoing().bytes(), args),
		)
		report(b, m[1], "raw", "metered", m[2], "whole", m[3])
	})
	b.Run("json", func(b *testing.B) {
		h := newHost(b, Options{Warm: 4})
		m := inTurn(1000, native(b, input), reusedAs(b, echo, nil, input),
			reusedAs(b, echo, rewritten, input), run(b, h, echo, args))
		report(b, m[1], "raw", "native", m[0], "metered", m[2], "whole", m[3])
		b.ReportMetric((m[3]-m[2])/1e6, "fresh-over-reused-ms")
	})
	b.Run("import", func(b *testing.B) {
		m := inTurn(50, reusedAs(b, importing().bytes(), nil, input),
			reusedAs(b, importing().bytes(), rewritten, input))
		report(b, m[0], "raw", "metered", m[1])
		b.ReportMetric(m[1]/100_000, "ns-an-import")
	})
	b.Run("instance", func(b *testing.B) {
		h := newHost(b, Options{Warm: -1})
		tool := h.add(echo)
		want(b, h.call(tool, object{}), "")
		t := h.plugin(tool).tmpl
		ctx, rt, compiled := unmetered(b, echo)
		m := inTurn(100, func() {
			mod, err := rt.InstantiateModule(ctx, compiled,
				wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize"))
			if err != nil {
				b.Fatal(err)
			}
			mod.Close(ctx)
		}, func() {
			in, err := t.instantiate(ctx)
			if err != nil {
				b.Fatal(err)
			}
			in.close()
		}, func() {
			in, err := t.instantiate(ctx)
			if err != nil || !in.reset(t) {
				b.Fatal(err)
			}
			in.close()
		})
		report(b, m[0], "raw-with-initialize", "template", m[1])
		b.ReportMetric((m[2]-m[1])/1e3, "reset-µs")
	})
	b.Run("start", func(b *testing.B) {
		dir := filepath.Join(b.TempDir(), "cache")
		start := func(dir string) func() {
			return func() {
				h := newHost(b, Options{CacheDir: dir})
				want(b, h.call(h.add(echo), object{}), "")
			}
		}
		start(dir)()
		m := inTurn(3, start(""), start(dir))
		report(b, m[0], "cold", "warm", m[1])
	})
	b.Run("stall", func(b *testing.B) {
		h := newHost(b, Options{})
		tool := h.add(spinners["loop"]().bytes())
		tool.Budget = time.Second
		h.ready(tool)
		idle := inTurn(20, runtime.GC)
		var wg sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			wg.Go(func() { want(b, h.call(tool, object{}), "budget") })
		}
		time.Sleep(50 * time.Millisecond)
		m := inTurn(20, runtime.GC)
		wg.Wait()
		report(b, idle[0], "idle", "spinning", m[0])
	})
	b.Run("throughput", func(b *testing.B) {
		h := newHost(b, Options{Warm: 4})
		call := run(b, h, echo, args)
		call()
		spent, began := cpuTime(), time.Now()
		const n = 2000
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range n / 4 {
					call()
				}
			})
		}
		wg.Wait()
		b.ReportMetric(n/time.Since(began).Seconds(), "calls/s")
		b.ReportMetric(float64(runtime.GOMAXPROCS(0))*n/(cpuTime()-spent).Seconds(),
			"calls/s-of-unshared-processors")
		b.ReportMetric(0, "ns/op")
	})
}

func reusedAs(b *testing.B, wasm []byte, rewrite func([]byte) []byte, input []byte) func() {
	call := reused(b, wasm, rewrite, false)
	return func() { call(input) }
}

// report gives ratios to the base.
func report(b *testing.B, base float64, name string, pairs ...any) {
	b.ReportMetric(base/1e3, name+"-µs")
	for k := 0; k < len(pairs); k += 2 {
		b.ReportMetric(pairs[k+1].(float64)/base, fmt.Sprintf("%s/%s", pairs[k], name))
	}
	b.ReportMetric(0, "ns/op")
}

// unmetered is wazero with our imports and nothing else.
func unmetered(b *testing.B, wasm []byte) (context.Context, wazero.Runtime, wazero.CompiledModule) {
	env := environment{
		newCPUScheduler(), time.Now, sleep, strings.NewReader(strings.Repeat("r", 1<<20)), nil,
	}
	ctx := context.WithValue(context.Background(), callKey{}, &call{door: noDoor{}, env: &env})
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(features))
	b.Cleanup(func() { rt.Close(ctx) })
	if err := register(ctx, rt, hostFuncs()); err != nil {
		b.Fatal(err)
	}
	compiled, err := rt.CompileModule(ctx, wasm)
	if err != nil {
		b.Fatal(err)
	}
	return ctx, rt, compiled
}
