package meter

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Quantum is the number of units between two looks at the clock: at most some milliseconds of the
// slowest code, usually about 0.1 ms.
const Quantum = 100_000

// Names that rewriting adds. A module that uses one of them is refused.
const (
	TickModule, TickName = "caponier:host", "tick" // the import

	ExportTicks = reserved + "ticks" // an i32 global: the units that are left of the quantum
	ExportStart = reserved + "start" // the start function, which no longer runs by itself
)

const (
	stepSize = 1 << 16 // bytes of memory.copy and memory.fill at a time
	costStep = 8_000   // of as many, which may all have to be faulted in
)

// rewriter rewrites one module.
type rewriter struct {
	placer
	more  uint32 // index of a function that is added
	ticks uint32 // index of a global that is added
}

// Rewrite returns the module to compile:
//
//   - Every function entry and every loop header subtracts from a counter the cost of what it leads
//     to. Below zero it calls the host, which returns a new quantum or ends the call. Every path
//     from one such point to the next is as long as its cost says, so none can outrun a deadline.
//   - memory.copy and memory.fill become functions that work in steps of 64 KiB, each with a cost.
//   - Data segments are left out and the start function becomes an export: the host lays the data
//     into the memory and calls start once. Mutable globals are exported under reserved names.
//     Memory and globals are then the whole state of a module: a table cannot change, since the
//     instructions that would change it are refused.
//   - Names and other custom sections are dropped. A module without a memory gets one of no pages.
//
// The added code leaves the stack as it was, and each index that the original uses is checked to be
// one of its own: so the compiler's validation of the result is a validation of the original.
func (m *Module) Rewrite() ([]byte, error) {
	more := m.count() + 1
	w := &rewriter{placer{Module: m, tick: uint32(len(m.imports)), copy: more + 1, fill: more + 2},
		more, uint32(len(m.globals))}
	codes, err := w.codeSection()
	if err != nil {
		return nil, err
	}
	n := uint32(len(m.types)) // the added types follow
	added := []Func{{Results: "\x7f"}, {}, {Params: "\x7f\x7f\x7f"}}
	types := append(slices.Clone(m.types), added...)
	imports := append(slices.Clone(m.imports), Import{Module: TickModule, Name: TickName, typ: n})
	ticks := global{I32, 1, i32const(nil, Quantum, opEnd)}
	out := append(make([]byte, 0, len(codes)+1<<16), "\x00asm\x01\x00\x00\x00"...)
	out = section(out, 1, list(types, func(out []byte, t Func) []byte {
		return name(name(append(out, 0x60), t.Params), t.Results)
	}))
	out = section(out, 2, list(imports, func(out []byte, i Import) []byte {
		return u32(append(name(name(out, i.Module), i.Name), 0), i.typ)
	}))
	out = section(out, 3, list(append(slices.Clone(m.funcs), n+1, n+2, n+2), u32))
	if m.table != nil {
		out = section(out, 4, u32(u32([]byte{1, 0x70, 1}, *m.table), *m.table))
	}
	// the host's allocator refuses what is over its limit, and knows then that it refused
	out = section(out, 5, u32(u32([]byte{1, 1}, m.memMin), m.memMax))
	globals := append(slices.Clone(m.globals), ticks)
	out = section(out, 6, list(globals, func(out []byte, g global) []byte {
		return append(append(out, g.typ, g.mutable), g.init...)
	}))
	out = section(out, 7, list(w.allExports(), func(out []byte, e Export) []byte {
		return u32(append(name(out, e.Name), byte(e.Kind)), e.index)
	}))
	if len(m.elements) > 0 {
		out = section(out, 9, list(m.elements, func(out []byte, s segment) []byte {
			out = i32const(append(out, 0), int64(int32(s.offset)), opEnd)
			return append(out, list(s.funcs, func(out []byte, f uint32) []byte {
				return u32(out, w.shift(f))
			})...)
		}))
	}
	return section(out, 10, codes), nil
}

func (w *rewriter) codeSection() ([]byte, error) {
	size := 1 << 10 // what is added is a sixth of the code in what Go compiles
	for _, c := range w.codes {
		size += len(c.body)*5/4 + 16
	}
	out, body := vec(make([]byte, 0, size), len(w.codes)+3), []byte(nil)
	for i, c := range w.codes {
		var err error
		if body, err = w.body(body[:0], w.types[w.funcs[i]], c); err != nil {
			return nil, fmt.Errorf("function %d: %w", i+len(w.imports), err)
		}
		out = append(vec(out, len(body)), body...)
	}
	for _, body := range [][]byte{w.moreBody(), w.copyBody(), w.fillBody()} {
		out = append(vec(out, len(body)), body...)
	}
	return out, nil
}

// allExports returns the module's own exports, shifted, and those that rewriting adds.
func (w *rewriter) allExports() []Export {
	all := []Export{{Name: ExportTicks, Kind: Global, index: w.ticks}}
	for _, e := range w.exports {
		if e.Kind == Function {
			e.index = w.shift(e.index)
		}
		all = append(all, e)
	}
	if w.start != nil {
		all = append(all, Export{Name: ExportStart, Kind: Function, index: w.shift(*w.start)})
	}
	for i, g := range w.globals {
		if g.mutable == 1 {
			all = append(all, Export{Name: exportGlobal(i), Kind: Global, index: uint32(i)})
		}
	}
	return all
}

// body appends one body, rewritten, to out.
func (w *rewriter) body(out []byte, t Func, c code) ([]byte, error) {
	params := uint32(len(t.Params))
	if err := w.place(c, params); err != nil {
		return nil, err
	}
	scratch := params + c.n
	out = append(u32(out, c.groups+1), c.locals...)
	out = append(out, 1, I32)
	from := 0
	for _, e := range w.edits {
		out = append(out, c.body[from:e.at]...)
		from = e.at + e.drop
		switch {
		case e.kind == editCall:
			out = u32(append(out, opCall), e.value)
		case e.kind == editZero:
			out = append(out, 0)
		case e.check && e.free:
			out = w.ask(u32(append(out, opGlobalGet), w.ticks))
		case e.check:
			out = w.charge(out, scratch, e.value)
		case !e.free:
			out = w.deduct(out, e.value+w.extra)
		}
	}
	return append(out, c.body[from:]...), nil
}

// deduct subtracts cost from the counter.
func (w *rewriter) deduct(out []byte, cost uint32) []byte {
	out = i32const(u32(append(out, opGlobalGet), w.ticks), int64(cost), opI32Sub)
	return u32(append(out, opGlobalSet), w.ticks)
}

// charge subtracts cost from the counter, and asks the host when it is spent. local is a scratch
// i32.
func (w *rewriter) charge(out []byte, local, cost uint32) []byte {
	out = i32const(u32(append(out, opGlobalGet), w.ticks), int64(cost), opI32Sub)
	return w.store(out, local)
}

// chargeBytes charges for an access to as many bytes as local n says.
func (w *rewriter) chargeBytes(out []byte, local uint32, n byte) []byte {
	out = i32const(u32(append(out, opGlobalGet), w.ticks), costCall, opI32Sub)
	out = i32const(append(out, opLocalGet, n), 3, opI32ShrU)
	return w.store(append(out, opI32Sub), local)
}

// store sets the counter to what is on the stack, and asks the host when it is spent.
func (w *rewriter) store(out []byte, local uint32) []byte {
	out = u32(append(out, opLocalTee), local)
	out = u32(append(out, opGlobalSet), w.ticks)
	return w.ask(u32(append(out, opLocalGet), local))
}

// ask calls the host when the counter, which is on the stack, is spent.
func (w *rewriter) ask(out []byte) []byte {
	out = append(i32const(out, 0, opI32LeS), opIf, noResult)
	return append(u32(append(out, opCall), w.more), opEnd)
}

// moreBody asks the host, and adds the quantum that it returns: an overdraft is carried on.
func (w *rewriter) moreBody() []byte {
	out := u32([]byte{0, opCall}, w.tick) // no locals
	out = append(u32(append(out, opGlobalGet), w.ticks), opI32Add)
	return append(u32(append(out, opGlobalSet), w.ticks), opEnd)
}

// get appends a local.get for each local.
func get(out []byte, locals ...byte) []byte {
	for _, l := range locals {
		out = append(out, opLocalGet, l)
	}
	return out
}

// copyBody is memory.copy in steps: forwards when the target is below the source, backwards
// otherwise, so that overlapping ranges come out right.
func (w *rewriter) copyBody() []byte {
	const to, from, n, scratch, forward = 0, 1, 2, 3, 4
	copies := []byte{opPrefix, memoryCopy, 0, 0}
	whole := append(get(nil, to, from, n), copies...)
	out := trapOutside(trapOutside([]byte{1, 2, I32}, to, whole), from, whole)
	out = append(get(out, to, from), opI32LeU, opLocalSet, forward)
	out = append(out, opLoop, noResult)
	out = append(i32const(get(out, n), stepSize, opI32LeU), opIf, noResult)
	out = w.chargeBytes(out, scratch, n)
	out = append(append(append(get(out, to, from, n), copies...), opReturn), opEnd) // the rest
	out = w.charge(out, scratch, costStep)
	out = append(i32const(get(out, n), stepSize, opI32Sub), opLocalSet, n)
	out = append(get(out, forward), opIf, noResult)
	out = append(i32const(get(out, to, from), stepSize, opPrefix), copies[1:]...)
	out = append(i32const(get(out, to), stepSize, opI32Add), opLocalSet, to)
	out = append(i32const(get(out, from), stepSize, opI32Add), opLocalSet, from)
	out = append(out, opElse) // the last step of the rest
	out = append(get(append(get(out, to, n), opI32Add), from, n), opI32Add)
	out = append(i32const(out, stepSize, opPrefix), copies[1:]...)
	return append(out, opEnd, opBr, 0, opEnd, opEnd)
}

// fillBody is memory.fill in steps.
func (w *rewriter) fillBody() []byte {
	const to, value, n, scratch = 0, 1, 2, 3
	fills := []byte{opPrefix, memoryFill, 0}
	out := trapOutside([]byte{1, 1, I32}, to, append(get(nil, to, value, n), fills...))
	out = append(out, opLoop, noResult)
	out = append(i32const(get(out, n), stepSize, opI32LeU), opIf, noResult)
	out = w.chargeBytes(out, scratch, n)
	out = append(append(append(get(out, to, value, n), fills...), opReturn), opEnd)
	out = w.charge(out, scratch, costStep)
	out = append(i32const(get(out, to, value), stepSize, opPrefix), fills[1:]...)
	out = append(i32const(get(out, to), stepSize, opI32Add), opLocalSet, to)
	out = append(i32const(get(out, n), stepSize, opI32Sub), opLocalSet, n)
	return append(out, opBr, 0, opEnd, opEnd)
}

// trapOutside runs the whole of a bulk instruction when the range of local n bytes at local ptr is
// not all in memory: the instruction traps before it writes anything, which its steps would not.
func trapOutside(out []byte, ptr byte, whole []byte) []byte {
	const n = 2
	out = append(get(out, ptr), opI64OfI32)
	out = append(get(out, n), opI64OfI32, opI64Add)
	out = append(out, opMemorySize, 0, opI64OfI32, opI64Const, pageSizeBits, opI64Shl, opI64GtU)
	return append(append(append(out, opIf, noResult), whole...), opEnd)
}

// list encodes a vector.
func list[T any](items []T, encode func([]byte, T) []byte) []byte {
	out := vec(nil, len(items))
	for _, i := range items {
		out = encode(out, i)
	}
	return out
}

func name(out []byte, s string) []byte { return append(vec(out, len(s)), s...) }

func vec(out []byte, n int) []byte { return u32(out, uint32(n)) }

// u32 appends LEB128, which is Go's varint.
func u32(out []byte, v uint32) []byte { return binary.AppendUvarint(out, uint64(v)) }

// i32const appends i32.const v and one more opcode.
func i32const(out []byte, v int64, then byte) []byte {
	out = append(out, opI32Const)
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
