package sandbox

import (
	"encoding/binary"
	"slices"

	"github.com/caponier-mcp/caponier/host/sandbox/meter"
)

const typeI32, typeI64, typeF32, typeF64 = meter.I32, meter.I64, meter.F32, meter.F64

type (
	imported  struct{ module, name string }
	signature struct{ params, results string }
	export    struct {
		name  string
		kind  byte
		index uint32
	}
)

// module builds modules that no compiler would make. Its functions are call, describe, init and
// then more, with the types of the ABI and, for more, () -> (). Imports come first, so that more[k]
// has the index len(imports)+3+k.
type module struct {
	imports              []imported
	types                []signature
	memory               []byte // of the section, default one memory of 1 to 16 pages
	table                []byte
	globals              []byte
	exports              []byte // further ones
	nExports             int
	elements, data       []byte
	call, describe, init []byte   // bodies without locals and without the last end
	more                 [][]byte // whole bodies: locals, code, end
	start                bool     // more[0] is the start function
	custom               []byte   // appended as it is
}

const okJSON = `{"content":[]}`

// okData lies at address 8.
func okData() []byte { return dataAt(8, okJSON) }

func dataAt(at int64, text string) []byte {
	return append(vec(i32const(slices.Clone([]byte{1, 0}), at, 0x0b), len(text)), text...)
}

func c32(v int64) []byte { return i32const(nil, v, 0x01) } // i32.const; nop

func op(parts ...any) []byte {
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

func callf(i int) []byte { return u32([]byte{0x10}, uint32(i)) }

// ok is a whole call that writes okJSON by import 0, which must be output_write, and returns 0.
func ok() []byte { return op(c32(8), c32(int64(len(okJSON))), callf(0), 0x1a, c32(0)) }

var output = imported{module: abiModule, name: "output_write"}

func body(code []byte) []byte { return append(append([]byte{0}, code...), 0x0b) }

func (g module) bytes() []byte {
	types := []signature{{"", i}, {"", ""}}
	known := hostFuncs()
	imports := vec(nil, len(g.imports))
	for k, im := range g.imports {
		f := known[im.module][im.name]
		sig := signature{f.params, f.results}
		if k < len(g.types) {
			sig = g.types[k]
		}
		types = append(types, sig)
		imports = append(vec(imports, len(im.module)), im.module...)
		imports = append(vec(imports, len(im.name)), im.name...)
		imports = u32(append(imports, 0), uint32(len(types)-1))
	}
	ts := vec(nil, len(types))
	for _, t := range types {
		ts = append(vec(append(ts, 0x60), len(t.params)), t.params...)
		ts = append(vec(ts, len(t.results)), t.results...)
	}
	n := len(g.imports)
	funcs := append(vec(nil, 3+len(g.more)), 0, 0, 1)
	for range g.more {
		funcs = append(funcs, 1)
	}
	def := func(b []byte) []byte {
		if b == nil {
			return c32(0)
		}
		return b
	}
	codes := vec(nil, 3+len(g.more))
	for _, b := range append([][]byte{body(def(g.call)), body(def(g.describe)), body(g.init)},
		g.more...) {
		codes = append(vec(codes, len(b)), b...)
	}
	exports := vec(nil, 4+g.nExports)
	for _, e := range []export{
		{"memory", 2, 0}, {"caponier_v1_call", 0, uint32(n)},
		{"caponier_v1_describe", 0, uint32(n + 1)}, {"_initialize", 0, uint32(n + 2)},
	} {
		exports = u32(append(append(vec(exports, len(e.name)), e.name...), e.kind), e.index)
	}
	if g.memory == nil {
		g.memory = []byte{1, 1, 1, 16}
	}
	if g.data == nil {
		g.data = okData()
	}
	out := section([]byte("\x00asm\x01\x00\x00\x00"), 1, ts)
	if n > 0 {
		out = section(out, 2, imports)
	}
	out = section(out, 3, funcs)
	if g.table != nil {
		out = section(out, 4, g.table)
	}
	out = section(out, 5, g.memory)
	if g.globals != nil {
		out = section(out, 6, g.globals)
	}
	out = section(out, 7, append(exports, g.exports...))
	if g.start {
		out = section(out, 8, vec(nil, n+3))
	}
	if g.elements != nil {
		out = section(out, 9, g.elements)
	}
	out = section(out, 10, codes)
	return append(section(out, 11, g.data), g.custom...)
}

func vec(out []byte, n int) []byte { return u32(out, uint32(n)) }

func u32(out []byte, v uint32) []byte { return binary.AppendUvarint(out, uint64(v)) }

// i32const appends i32.const v and one more opcode.
func i32const(out []byte, v int64, then byte) []byte {
	out = append(out, 0x41)
	for {
		b := byte(v & 0x7f)
		v >>= 7
		if v == 0 && b&0x40 == 0 || v == -1 && b&0x40 != 0 {
			return append(out, b, then)
		}
		out = append(out, b|0x80)
	}
}

func section(out []byte, id byte, body []byte) []byte {
	return append(vec(append(out, id), len(body)), body...)
}
