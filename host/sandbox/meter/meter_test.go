package meter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

const features = api.CoreFeaturesV1 | api.CoreFeatureSignExtensionOps |
	api.CoreFeatureNonTrappingFloatToIntConversion | api.CoreFeatureBulkMemoryOperations

func c32(v int64) []byte { return i32const(nil, v, 0x01) } // i32.const; nop

func callf(i int) []byte { return u32([]byte{opCall}, uint32(i)) }

func ops(parts ...any) []byte {
	var out []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			out = append(out, byte(p))
		case byte:
			out = append(out, p)
		case []byte:
			out = append(out, p...)
		}
	}
	return out
}

// build makes a module of one page of memory, which may grow to eight, one mutable global, and
// functions: the first, () -> i32, is exported as "call", the others are () -> ().
func build(bodies ...[]byte) []byte {
	out := section([]byte("\x00asm\x01\x00\x00\x00"), 1, []byte{2, 0x60, 0, 1, I32, 0x60, 0, 0})
	funcs, codes := append(vec(nil, len(bodies)), 0), vec(nil, len(bodies))
	for k, b := range bodies {
		if k > 0 {
			funcs = append(funcs, 1)
		}
		codes = append(vec(codes, len(b)), b...)
	}
	out = section(out, 3, funcs)
	out = section(out, 5, []byte{1, 1, 1, 8})
	out = section(out, 6, ops(1, I32, 1, i32const(nil, 7, opEnd)))
	out = section(out, 7, append([]byte{1, 4}, "call\x00\x00"...))
	out = section(out, 10, codes)
	return section(out, 11, append(ops(1, 0, i32const(nil, 8, opEnd), 4), "data"...))
}

// program makes a random function body without parameters and with an i32 result, with loops that
// end.
type program struct {
	*rand.Rand
	out    []byte
	budget int
}

const progLocals = 6 // the last two count loops

func (p *program) expr(depth int) { // pushes an i32
	switch k := p.IntN(12); {
	case depth <= 0 || k < 3:
		p.out = append(p.out, c32(int64(int32(p.Uint32()>>p.IntN(32))))...)
	case k < 6:
		p.out = append(p.out, 0x20, byte(p.IntN(progLocals-2)))
	case k == 6:
		p.out = append(p.out, 0x23, 0)
	case k == 7: // a load somewhere in the first page
		p.expr(depth - 1)
		p.out = append(p.out, ops(c32(0xffff), 0x71, 0x2d, 0, 0)...)
	case k == 8: // select
		p.expr(depth - 1)
		p.expr(depth - 1)
		p.expr(depth - 1)
		p.out = append(p.out, 0x1b)
	case k == 9: // if with a result
		p.expr(depth - 1)
		p.out = append(p.out, 0x04, I32)
		p.expr(depth - 1)
		p.out = append(p.out, 0x05)
		p.expr(depth - 1)
		p.out = append(p.out, 0x0b)
	default:
		p.expr(depth - 1)
		p.expr(depth - 1)
		p.out = append(p.out,
			[]byte{
				0x6a, 0x6b, 0x6c, 0x71, 0x72, 0x73, 0x74, 0x76, 0x46, 0x48, 0x6e, 0x70, 0x78,
			}[p.IntN(13)])
	}
}

func (p *program) statement(depth, labels int) {
	if p.budget--; p.budget < 0 {
		return
	}
	switch k := p.IntN(14); {
	case k < 4 || depth <= 0:
		p.expr(3)
		p.out = append(p.out, 0x21, byte(p.IntN(progLocals-2)))
	case k == 4:
		p.expr(3)
		p.out = append(p.out, 0x24, 0)
	case k == 5: // a store
		p.expr(2)
		p.out = append(p.out, ops(c32(0xfffc), 0x71)...)
		p.expr(2)
		p.out = append(p.out, 0x36, 0, 0)
	case k == 6 && labels > 0: // a branch out
		p.expr(2)
		p.out = append(p.out, 0x0d, byte(p.IntN(labels)))
	case k == 7:
		p.expr(2)
		p.out = append(p.out, 0x04, 0x40)
		p.statements(depth-1, labels+1)
		if p.IntN(2) == 0 {
			p.out = append(p.out, 0x05)
			p.statements(depth-1, labels+1)
		}
		p.out = append(p.out, 0x0b)
	case k == 8 || k == 9:
		p.out = append(p.out, 0x02, 0x40)
		p.statements(depth-1, labels+1)
		p.out = append(p.out, 0x0b)
	case k == 10 && depth > 1: // a loop of at most 5 rounds, each its own counter at this depth
		counter := byte(progLocals - 2 + depth%2)
		p.out = append(p.out, ops(c32(5), 0x21, counter, 0x02, 0x40, 0x03, 0x40)...)
		inner := labels
		labels = 0 // no branches from inside but our own: they could jump back
		for range 2 {
			p.statement(0, labels)
		}
		labels = inner
		p.out = append(p.out,
			ops(0x20, counter, c32(1), 0x6b, 0x22, counter, c32(0), 0x4a, 0x0d, 0, 0x0b, 0x0b)...)
	case k == 11: // a dispatch as Go's compiler makes it
		n := 2 + p.IntN(4)
		p.out = append(p.out, bytes.Repeat([]byte{0x02, 0x40}, n)...)
		p.expr(2)
		p.out = append(p.out, 0x0e, byte(n-1))
		for l := range n {
			p.out = append(p.out, byte(l))
		}
		for range n {
			p.out = append(p.out, 0x0b)
			p.statement(depth-1, labels)
		}
	case k == 12: // bulk memory, in range or not
		kind := p.IntN(2)
		for range 2 {
			p.expr(1)
			p.out = append(p.out, ops(c32(0x3ffff), 0x71)...)
		}
		p.expr(1)
		p.out = append(p.out, ops(c32(0x1ffff), 0x71, 0xfc, 10+kind, make([]byte, 2-kind))...)
	case k == 13:
		p.out = append(p.out, callf(1+p.IntN(2))...) // the leaves, which call nothing
	}
}

func (p *program) statements(depth, labels int) {
	for range 1 + p.IntN(4) {
		p.statement(depth, labels)
	}
}

func randomModule(seed uint64) []byte {
	p := &program{Rand: rand.New(rand.NewPCG(seed, 1))}
	make := func(budget int, body func()) []byte {
		p.out, p.budget = []byte{1, progLocals, I32}, budget
		body()
		return append(p.out, opEnd)
	}
	leaf := func() []byte { return make(3, func() { p.statement(0, 0) }) }
	first, second := leaf(), leaf()
	main := make(150, func() { p.statements(5, 0) })
	return build(ops(0, callf(3), opGlobalGet, 0, opEnd), first, second, main)
}

var errStopped = errors.New("stopped by the test")

// runner runs modules as they are and rewritten, in an interpreter with one import: the tick.
type runner struct {
	rt    wazero.Runtime
	ticks int // that are left
}

func newRunner(t testing.TB) *runner {
	ctx := context.Background()
	r := &runner{rt: wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().
		WithCoreFeatures(features|api.CoreFeatureReferenceTypes).WithMemoryLimitPages(16))}
	t.Cleanup(func() { r.rt.Close(ctx) })
	tick := api.GoFunc(func(_ context.Context, stack []uint64) {
		if r.ticks--; r.ticks < 0 {
			panic(errStopped)
		}
		stack[0] = Quantum
	})
	_, err := r.rt.NewHostModuleBuilder(TickModule).NewFunctionBuilder().
		WithGoFunction(tick, nil, []api.ValueType{I32}).Export(TickName).Instantiate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// observe runs the start function and then every exported function without parameters, and returns
// all that can be seen of that: results, traps, globals and memory. memory, if not nil, is laid
// into the instance first, and an exported start function is called. stopped reports that it ran
// out of ticks.
func (r *runner) observe(wasm []byte, m *Module, memory []byte) (seen string, stopped bool) {
	ctx := context.Background()
	compiled, err := r.rt.CompileModule(ctx, wasm)
	if err != nil {
		return "refused: " + err.Error(), false
	}
	defer compiled.Close(ctx)
	mod, err := r.rt.InstantiateModule(ctx, compiled,
		wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil { // as for a start function that traps
		reason, _, _ := strings.Cut(err.Error(), "\n")
		_, reason, _ = strings.Cut(reason, "wasm error: ")
		return "start: " + reason, false
	}
	defer mod.Close(ctx)
	out := ""
	run := func(name string) bool {
		result, err := mod.ExportedFunction(name).Call(ctx)
		if errors.Is(err, errStopped) {
			stopped = true
		}
		if err != nil {
			reason, _, _ := strings.Cut(err.Error(), "\n")
			_, reason, _ = strings.Cut(reason, "wasm error: ")
			out += fmt.Sprintf("%s: %s; ", name, reason)
			return false
		}
		types := mod.ExportedFunction(name).Definition().ResultTypes()
		for k := range result { // the upper half of 32 bits is anything
			if types[k] == I32 || types[k] == F32 {
				result[k] = uint64(uint32(result[k]))
			}
		}
		out += fmt.Sprint(name, result, "; ")
		return true
	}
	if memory != nil {
		if m.HasMemory() {
			mod.Memory().Write(0, memory)
		}
		if mod.ExportedFunction(ExportStart) != nil && !run(ExportStart) {
			return "start: " + strings.TrimSuffix(out[len(ExportStart)+2:], "; "), stopped
		}
		out = ""
	}
	for _, e := range m.Exports() {
		if e.Kind == Function && e.Type.Params == "" && !stopped {
			run(e.Name)
		}
		if e.Kind == Global {
			out += fmt.Sprint(mod.ExportedGlobal(e.Name).Get(), "; ")
		}
	}
	if m.HasMemory() {
		all, _ := mod.Memory().Read(0, mod.Memory().Size())
		sum := fnv.New64a()
		sum.Write(all)
		out += fmt.Sprintf("%d %x", len(all), sum.Sum64())
	}
	return out, stopped
}

// TestRewritingChangesNothingButTime runs random programs as they are and rewritten.
func TestRewritingChangesNothingButTime(t *testing.T) {
	n := uint64(1000)
	if testing.Short() {
		n = 200
	}
	trapped, r := 0, newRunner(t)
	for seed := range n {
		wasm := randomModule(seed)
		m, err := Parse(wasm)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		rewritten, err := m.Rewrite()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		r.ticks = 10_000
		before, _ := r.observe(wasm, m, nil)
		after, _ := r.observe(rewritten, m, m.Memory())
		if before != after {
			t.Errorf("seed %d: %s before, %s after", seed, before, after)
		}
		if strings.HasPrefix(before, "refused") {
			t.Fatalf("seed %d makes no valid module: %s", seed, before)
		}
		if !strings.HasPrefix(before, "call[") {
			trapped++
		}
	}
	if trapped == int(n) {
		t.Error("every program trapped: this test compares nothing")
	}
	t.Logf("%d of %d programs trapped", trapped, n)
}

// FuzzRewrite: a module that Parse and Rewrite accept is compiled or refused in bounded time. If
// the rewritten module is valid, so is the original; the two run the same, or the rewritten one
// runs out of ticks; and a rewritten module is not accepted as an original.
func FuzzRewrite(f *testing.F) {
	for seed := range uint64(5) {
		f.Add(randomModule(seed))
	}
	ctx := context.Background()
	compiler := wazero.NewRuntimeWithConfig(ctx,
		wazero.NewRuntimeConfig().WithCoreFeatures(features))
	f.Cleanup(func() { compiler.Close(ctx) })
	r := newRunner(f)
	f.Fuzz(func(t *testing.T, wasm []byte) { checkRewrite(t, compiler, r, wasm) })
}

// withoutCustom drops custom sections. wazero must not see those of a fuzzer: it allocates as many
// names as a section announces, which ends the process.
func withoutCustom(wasm []byte) []byte {
	r, out := &reader{b: wasm, pos: 8}, wasm[:8:8]
	for r.more() {
		begin := r.pos
		id := r.byte()
		if r.take(r.u32()); id != 0 {
			out = append(out, wasm[begin:r.pos]...)
		}
	}
	return out
}

func checkRewrite(t *testing.T, compiler wazero.Runtime, r *runner, wasm []byte) {
	ctx := context.Background()
	m, err := Parse(wasm)
	if err != nil {
		return
	}
	rewritten, err := m.Rewrite()
	if err != nil {
		return
	}
	began := time.Now()
	compiled, err := compiler.CompileModule(ctx, rewritten)
	if took := time.Since(began); took > 20*time.Second {
		t.Fatalf("compiling %d bytes took %s", len(wasm), took)
	}
	if err != nil {
		return
	}
	compiled.Close(ctx)
	wasm = withoutCustom(wasm)
	// overlong table numbers are valid only with reference types
	original, err := r.rt.CompileModule(ctx, wasm)
	if err != nil {
		if m.HasMemory() && m.Pages() <= 16 { // a module without a memory gets one
			t.Fatalf("the rewritten module is valid, and its original is not: %v", err)
		}
		return
	}
	original.Close(ctx)
	if again, err := Parse(rewritten); err == nil {
		if _, err := again.Rewrite(); err == nil {
			t.Error("a rewritten module is accepted as an original one")
		}
	}
	if len(m.Imports()) > 0 || m.Pages() > 16 {
		return
	}
	r.ticks = 20
	after, stopped := r.observe(rewritten, m, m.Memory())
	if stopped { // the original may run for ever
		return
	}
	before, _ := r.observe(wasm, m, nil)
	if before != after && !strings.Contains(before+after, "stack overflow") {
		t.Errorf("%s before, %s after", before, after)
	}
}

func TestNumbersAreReadAsTheFormatSays(t *testing.T) {
	for name, c := range map[string]struct {
		bytes []byte
		value uint32
		bad   bool
	}{
		"one byte":  {[]byte{0x7f}, 127, false},
		"padded":    {[]byte{0x80, 0x80, 0x80, 0x80, 0x00}, 0, false},
		"largest":   {[]byte{0xff, 0xff, 0xff, 0xff, 0x0f}, 1<<32 - 1, false},
		"33 bits":   {[]byte{0xff, 0xff, 0xff, 0xff, 0x1f}, 0, true},
		"six bytes": {[]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x00}, 0, true},
		"cut":       {[]byte{0x80}, 0, true},
		"nothing":   {nil, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &reader{b: c.bytes}
			if v := r.u32(); (r.err != nil) != c.bad || !c.bad && v != c.value {
				t.Errorf("read %d, %v", v, r.err)
			}
		})
	}
	for _, v := range []int64{0, 1, -1, 63, 64, -64, -65, 1<<31 - 1, -1 << 31} {
		r := &reader{b: i32const(nil, v, 0)[1:]}
		if got := r.signed(32); got != v || r.err != nil {
			t.Errorf("%d was read as %d, %v", v, got, r.err)
		}
	}
}
