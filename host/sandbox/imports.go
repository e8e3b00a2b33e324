package sandbox

import (
	"bytes"
	"context"
	"strings"

	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/sandbox/meter"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// abiModule is the module name of the imports of ABI version 1.
const abiModule = "caponier_v1"

// arguments of a host function. The upper half of an i32 is undefined, so each is read with i32.
type arguments []uint64

func (a arguments) i32(i int) uint32 { return uint32(a[i]) }

// hostFunc is an import. The result of do is ignored when the import has none.
type hostFunc struct {
	params, results string // value types, one byte each
	do              func(c *call, ctx context.Context, mem api.Memory, a arguments) uint32
}

// Value types of imports.
const (
	noArgs, i, ii, iii = "", "\x7f", "\x7f\x7f", "\x7f\x7f\x7f"
	iiii, iiiii        = "\x7f\x7f\x7f\x7f", "\x7f\x7f\x7f\x7f\x7f"
	long               = "\x7e"
)

// hostFuncs returns all the imports that exist, by module and name. Others cannot be linked.
func hostFuncs() map[string]map[string]hostFunc {
	v1 := map[string]hostFunc{
		"input_len":    {noArgs, i, (*call).inputLen},
		"resp_len":     {noArgs, i, (*call).respLen},
		"input_read":   {ii, i, (*call).inputRead},
		"resp_read":    {ii, i, (*call).respRead},
		"output_write": {ii, i, (*call).outputWrite},
		"log":          {iii, noArgs, (*call).writeLog},
		"progress":     {ii, noArgs, (*call).progress},
	}
	for _, name := range abi.Operations() {
		v1[name] = hostFunc{ii, i,
			func(c *call, ctx context.Context, mem api.Memory, a arguments) uint32 {
				request, ok := c.take(mem, a.i32(0), min(a.i32(1), abi.MaxRequest+1))
				return c.operate(ctx, name, request, ok)
			}}
	}
	tick := func(c *call, ctx context.Context, _ api.Memory, _ arguments) uint32 {
		c.tick(ctx)
		return meter.Quantum
	}
	return map[string]map[string]hostFunc{
		abiModule:        v1,
		wasiModule:       wasiFuncs(),
		meter.TickModule: {meter.TickName: {noArgs, i, tick}},
	}
}

// register makes the host modules of a runtime. Every import ends an instance whose time is up,
// before and after its work.
func register(ctx context.Context, rt wazero.Runtime, all map[string]map[string]hostFunc) error {
	for module, funcs := range all {
		b := rt.NewHostModuleBuilder(module)
		for name, f := range funcs {
			fn := func(ctx context.Context, mod api.Module, stack []uint64) {
				c := ctx.Value(callKey{}).(*call)
				c.check(ctx)
				r := f.do(c, ctx, mod.Memory(), stack)
				c.settle(ctx)
				if f.results != "" {
					stack[0] = uint64(r)
				}
				c.check(ctx)
			}
			b.NewFunctionBuilder().
				WithGoModuleFunction(api.GoModuleFunc(fn), []byte(f.params), []byte(f.results)).
				Export(name)
		}
		if _, err := b.Instantiate(ctx); err != nil {
			return err
		}
	}
	return nil
}

// take copies a range of the module's memory, once: what is decided is what is executed, whatever
// the module does to its memory meanwhile.
func (c *call) take(mem api.Memory, ptr, n uint32) ([]byte, bool) {
	view, ok := mem.Read(ptr, n)
	c.charge(len(view))
	return bytes.Clone(view), ok
}

// give copies the rest of data into the range that the module named, and returns the number of
// bytes.
func (c *call) give(mem api.Memory, a arguments, data []byte, at *int) uint32 {
	view, ok := mem.Read(a.i32(0), a.i32(1))
	if !ok {
		return outOfRange
	}
	n := copy(view, data[*at:])
	*at += n
	c.charge(n)
	return uint32(n)
}

func (c *call) inputLen(context.Context, api.Memory, arguments) uint32 {
	return uint32(len(c.input))
}

func (c *call) respLen(context.Context, api.Memory, arguments) uint32 {
	return uint32(len(c.resp))
}

func (c *call) inputRead(_ context.Context, mem api.Memory, a arguments) uint32 {
	return c.give(mem, a, c.input, &c.inputAt)
}

func (c *call) respRead(_ context.Context, mem api.Memory, a arguments) uint32 {
	return c.give(mem, a, c.resp, &c.respAt)
}

func (c *call) outputWrite(_ context.Context, mem api.Memory, a arguments) uint32 {
	view, ok := mem.Read(a.i32(0), a.i32(1))
	switch {
	case !ok:
		return outOfRange
	case c.output.n+len(view) > c.max:
		c.output, c.over = pieces{}, true
		panic(errOver)
	}
	c.output.add(view)
	c.charge(len(view))
	return 0
}

// pieces collects bytes without copying what is there already: growing a slice of many MiB, and
// collecting the garbage of that, would stall others.
type pieces struct {
	all [][]byte
	n   int // bytes
}

const maxPieceSize = 256 << 10 // bytes

func (p *pieces) add(b []byte) {
	p.n += len(b)
	for len(b) > 0 {
		last := len(p.all) - 1
		if last < 0 || len(p.all[last]) == cap(p.all[last]) {
			p.all = append(p.all, make([]byte, 0, min(max(len(b), p.n), maxPieceSize)))
			last++
		}
		room := p.all[last][len(p.all[last]):cap(p.all[last])]
		n := copy(room, b)
		p.all[last] = p.all[last][:len(p.all[last])+n]
		b = b[n:]
	}
}

// bytes returns all of them. Nothing may be added afterwards.
func (p *pieces) bytes() []byte {
	if len(p.all) == 1 {
		return p.all[0]
	}
	return bytes.Join(p.all, nil)
}

var oneLine = strings.NewReplacer("\n", " ", "\t", " ")

// clean makes text of a module harmless to show, in one line of at most max bytes and a "…".
func clean(s string, max int) string {
	s = s[:min(len(s), 8*max)] // cleaning takes time
	return plaintext.Short(oneLine.Replace(plaintext.Clean(s)), max)
}
