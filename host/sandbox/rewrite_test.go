package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

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
		p.out = append(p.out, op(c32(0xffff), 0x71, 0x2d, 0, 0)...)
	case k == 8: // select
		p.expr(depth - 1)
		p.expr(depth - 1)
		p.expr(depth - 1)
		p.out = append(p.out, 0x1b)
	case k == 9: // if with a result
		p.expr(depth - 1)
		p.out = append(p.out, 0x04, typeI32)
		p.expr(depth - 1)
		p.out = append(p.out, 0x05)
		p.expr(depth - 1)
		p.out = append(p.out, 0x0b)
	default:
		p.expr(depth - 1)
		p.expr(depth - 1)
		p.out = append(
			p.out,
			[]byte{0x6a, 0x6b, 0x6c, 0x71, 0x72, 0x73, 0x74, 0x76, 0x46, 0x48, 0x6e, 0x70, 0x78}[p.IntN(13)],
		)
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
		p.out = append(p.out, op(c32(0xfffc), 0x71)...)
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
		p.out = append(p.out, op(c32(5), 0x21, counter, 0x02, 0x40, 0x03, 0x40)...)
		inner := labels
		labels = 0 // no branches from inside but our own: they could jump back
		for range 2 {
			p.statement(0, labels)
		}
		labels = inner
		p.out = append(
			p.out,
			op(0x20, counter, c32(1), 0x6b, 0x22, counter, c32(0), 0x4a, 0x0d, 0, 0x0b, 0x0b)...)
	case k == 11: // a dispatch as Go's compiler makes it
		n := 2 + p.IntN(4)
		p.out = append(p.out, repeat([]byte{0x02, 0x40}, n)...)
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
			p.out = append(p.out, op(c32(0x3ffff), 0x71)...)
		}
		p.expr(1)
		p.out = append(p.out, op(c32(0x1ffff), 0x71, 0xfc, 10+kind, make([]byte, 2-kind))...)
	case k == 13:
		p.out = append(p.out, callf(3+p.IntN(2))...) // more[0], more[1]: they call nothing
	}
}

func (p *program) statements(depth, labels int) {
	for range 1 + p.IntN(4) {
		p.statement(depth, labels)
	}
}

func randomGuest(seed uint64) guest {
	p := &program{Rand: rand.New(rand.NewPCG(seed, 1)), budget: 300}
	locals := []byte{1, progLocals, typeI32}
	whole := func(result bool) []byte {
		p.out, p.budget = nil, 150
		p.statements(5, 0)
		if result {
			p.expr(4)
		}
		return append(append(bytes.Clone(locals), p.out...), 0x0b)
	}
	leaf := func() []byte {
		p.out, p.budget = nil, 3
		p.statement(0, 0)
		return append(append(bytes.Clone(locals), p.out...), 0x0b)
	}
	main := whole(false)
	// call runs more[2], which holds the program, and answers with a mix of the state.
	return guest{
		memory:  []byte{1, 1, 4, 8},
		globals: []byte{1, typeI32, 1, 0x41, 7, 0x0b},
		more:    [][]byte{leaf(), leaf(), main},
		call:    op(callf(5), 0x23, 0),
	}
}

// observe runs a module and gives everything that can be seen of it.
func observe(
	t testing.TB,
	rt wazero.Runtime,
	wasm []byte,
	ctx context.Context,
	globalName string,
) string {
	compiled, err := rt.CompileModule(ctx, wasm)
	if err != nil {
		return "refused: " + err.Error()
	}
	defer compiled.Close(ctx)
	mod, err := rt.InstantiateModule(
		ctx,
		compiled,
		wazero.NewModuleConfig().WithName("").WithStartFunctions(),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer mod.Close(ctx)
	var stack [1]uint64
	reason := "ok"
	if err = mod.ExportedFunction("caponier_v1_call").CallWithStack(ctx, stack[:]); err != nil {
		reason, _, _ = strings.Cut(err.Error(), "\n")
		stack[0] = 0
	}
	mem, _ := mod.Memory().Read(0, mod.Memory().Size())
	sum := uint64(14695981039346656037)
	for _, b := range mem {
		sum = (sum ^ uint64(b)) * 1099511628211
	}
	return fmt.Sprintf("%s %d %d %x", reason, uint32(stack[0]), len(mem), sum)
}

// TestRewritingChangesNothingButTime runs random programs as they are and rewritten.
func TestRewritingChangesNothingButTime(t *testing.T) {
	n := uint64(400)
	if testing.Short() {
		n = 100
	}
	different, trapped := 0, 0
	same := newSame(t)
	for seed := range n {
		before, after := same(randomGuest(seed).bytes())
		if before != after {
			different++
			t.Errorf("seed %d: %s before, %s after", seed, before, after)
		}
		if !strings.HasPrefix(before, "ok") {
			trapped++
		}
		if strings.HasPrefix(before, "refused") {
			t.Fatalf("seed %d makes no valid module: %s", seed, before)
		}
	}
	if trapped == int(n) {
		t.Error("every program trapped: this test compares nothing")
	}
	t.Logf("%d of %d programs trapped", trapped, n)
}

// newSame returns a function that observes a module as it is and rewritten. The data segments of
// the original are empty in this: see randomGuest.
func newSame(t testing.TB) func([]byte) (before, after string) {
	ctx := context.WithValue(
		context.Background(),
		callKey{},
		&call{env: &environment{newTurns(), time.Now, sleep, nil}},
	)
	rt := wazero.NewRuntimeWithConfig(
		ctx,
		wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(features),
	)
	if err := register(ctx, rt, hostFuncs()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close(ctx) })
	return func(wasm []byte) (string, string) {
		m, rewritten, err := load(wasm, nil, 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.data) > 0 { // lay the data in as the sandbox does: by a data segment again
			data := vec(nil, len(m.data))
			for _, s := range m.data {
				data = append(
					vec(i32const(append(data, 0), int64(int32(s.offset)), 0x0b), len(s.data)),
					s.data...)
			}
			rewritten = section(rewritten, 11, data)
		}
		return observe(t, rt, wasm, ctx, ""), observe(t, rt, rewritten, ctx, "")
	}
}

// FuzzModule: whatever the parser and rewriter accept is compiled or refused in bounded time; what
// the compiler's validation takes, it takes in the original form too; and nothing panics.
func FuzzModule(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(randomGuest(seed).bytes())
	}
	f.Add(hoarder().bytes())
	f.Add(
		guest{
			table:    []byte{1, 0x70, 0, 1},
			elements: []byte{1, 0, 0x41, 0, 0x0b, 1, 0},
			call:     op(c32(0), 0x11, 0, 0),
		}.bytes(),
	)
	f.Add(
		guest{
			table:    []byte{1, 0x70, 0, 1},
			elements: []byte{1, 0, 0x41, 0, 0x0b, 1, 0},
			call:     op(c32(0), 0x11, 0, 0x80, 0x80, 0x80, 0x80, 0),
		}.bytes(),
	)
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(features))
	// which is what overlong table numbers need
	lenient := wazero.NewRuntimeWithConfig(
		ctx,
		wazero.NewRuntimeConfigInterpreter().
			WithCoreFeatures(features|api.CoreFeatureReferenceTypes),
	)
	f.Fuzz(func(t *testing.T, wasm []byte) {
		m, err := parse(wasm)
		if err != nil {
			return
		}
		rewritten, err := m.rewrite(1024)
		if err != nil {
			return
		}
		began := time.Now()
		compiled, err := rt.CompileModule(ctx, rewritten)
		if took := time.Since(began); took > 20*time.Second {
			t.Fatalf("compiling %d bytes took %s", len(wasm), took)
		}
		if err != nil {
			return
		}
		compiled.Close(ctx)
		original, err := lenient.CompileModule(ctx, wasm)
		if err != nil {
			t.Fatalf("the rewritten module is valid, and its original is not: %v", err)
		}
		original.Close(ctx)
		if again, err := parse(rewritten); err == nil {
			if _, err := again.rewrite(1024); err == nil {
				t.Error("a rewritten module passes for an original one")
			}
		}
	})
}
