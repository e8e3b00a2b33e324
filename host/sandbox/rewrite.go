package sandbox

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// A module is rewritten before it is compiled, so that it can be stopped, metered and started from
// any state:
//
//   - Every function entry and every loop header subtracts the cost of what it leads to from a counter; below zero it calls the host, which gives a new
//     quantum or ends the call. Since every path from one such point to the next is as long as its cost says, none can outrun a deadline.
//   - memory.copy and memory.fill become functions that work in steps of 64 KiB, each with its cost.
//   - Data segments and the start function are taken out: the host lays the data into the memory image itself and runs start once. Mutable globals are
//     exported under reserved names, so that the host can read and set them. With that, memory image and globals are a module's whole state: tables
//     cannot change, since the instructions that would are refused.
//   - Names and other custom sections are dropped.
//
// Injected code leaves the stack as it was, and whatever index the original uses is checked to be
// its own, not one of those that rewriting adds: so the compiler's validation of the result is
// validation of the original.
const (
	// units between two looks at the clock: at most some milliseconds of the slowest code, usually
	// about 0.1 ms
	quantum    = 100_000
	maxPiece   = 4_000   // from where on straight code is charged for in pieces
	maxUnasked = 20_000  // the longest function that asks only at its entry and its loop headers
	maxFree    = 32      // the most that an entry may do without a charge
	stepSize   = 1 << 16 // bytes of memory.copy and memory.fill at a time

	costAccess = 4  // a load may miss every cache
	costSlow   = 10 // division, square root, indirect calls
	costCall   = 10
	costGrow   = 2_000
	costStep   = 8_000 // 64 KiB that may all have to be faulted in

	tickModule, tickName = "caponier:host", "tick"
	exportTicks          = reserved + "ticks"
	exportStart          = reserved + "start"
)

func exportGlobal(i int) string { return fmt.Sprint(reserved, "global", i) }

type rewriter struct {
	*module
	tick, more, copy, fill uint32 // function indices
	ticks                  uint32 // global index
	nestWork               int
	work, localWork        uint64

	edits  []edit // room that one body's plan leaves for the next
	points []int
	blocks []block
}

// rewrite returns the module to compile. limit is in pages of memory.
func (m *module) rewrite(limit uint32) ([]byte, error) {
	if m.memMin > limit {
		return nil, fmt.Errorf(
			"the module needs %d KiB of memory at once; its limit is %d KiB (sandbox.memory_max)",
			m.memMin*64,
			limit*64,
		)
	}
	w := &rewriter{module: m, tick: uint32(len(m.imports)), ticks: uint32(len(m.globals))}
	w.more = m.count() + 1
	w.copy, w.fill = w.more+1, w.more+2
	size := 0
	for _, c := range m.codes {
		size += len(c.body) + 16
	}
	bodies, body := vec(make([]byte, 0, size+size/4), len(m.codes)+3), []byte(nil)
	for i, c := range m.codes {
		var err error
		if body, err = w.function(body[:0], m.types[m.funcs[i]], c); err != nil {
			return nil, fmt.Errorf("function %d: %w", i+len(m.imports), err)
		}
		bodies = append(vec(bodies, len(body)), body...)
	}
	for _, body := range [][]byte{w.moreBody(), w.copyBody(), w.fillBody()} {
		bodies = append(vec(bodies, len(body)), body...)
	}

	nTypes := len(m.types)
	types := vec(nil, nTypes+3)
	for _, t := range append(slices.Clone(m.types), signature{results: i}, signature{}, signature{params: iii}) {
		types = append(types, 0x60)
		types = append(vec(types, len(t.params)), t.params...)
		types = append(vec(types, len(t.results)), t.results...)
	}
	imports := vec(nil, len(m.imports)+1)
	for _, i := range append(slices.Clone(m.imports), imported{tickModule, tickName, uint32(nTypes)}) {
		imports = append(vec(imports, len(i.module)), i.module...)
		imports = append(vec(imports, len(i.name)), i.name...)
		imports = u32(append(imports, 0), i.typ)
	}
	funcs := vec(nil, len(m.funcs)+3)
	for _, t := range append(slices.Clone(m.funcs), uint32(nTypes+1), uint32(nTypes+2), uint32(nTypes+2)) {
		funcs = u32(funcs, t)
	}
	globals := vec(nil, len(m.globals)+1)
	for _, g := range append(slices.Clone(m.globals), global{typeI32, true, i32const(nil, quantum, 0x0b)}) {
		mutable := byte(0)
		if g.mutable {
			mutable = 1
		}
		globals = append(append(globals, g.typ, mutable), g.init...)
	}

	out := append(
		make([]byte, 0, len(bodies)+len(types)+len(funcs)+1<<16),
		"\x00asm\x01\x00\x00\x00"...)
	out = section(out, 1, types)
	out = section(out, 2, imports)
	out = section(out, 3, funcs)
	if m.table != nil {
		out = section(out, 4, u32(u32([]byte{1, 0x70, 1}, *m.table), *m.table))
	}
	// limit is the allocator's, who knows then that it refused
	out = section(out, 5, u32(u32([]byte{1, 1}, m.memMin), m.memMax))
	out = section(out, 6, globals)
	out = section(out, 7, w.exportSection())
	if len(m.elements) > 0 {
		elements := vec(nil, len(m.elements))
		for _, s := range m.elements {
			elements = i32const(append(elements, 0), int64(int32(s.offset)), 0x0b)
			elements = vec(elements, len(s.funcs))
			for _, f := range s.funcs {
				elements = u32(elements, w.shift(f))
			}
		}
		out = section(out, 9, elements)
	}
	return section(out, 10, bodies), nil
}

func (w *rewriter) exportSection() []byte {
	all := []export{{exportTicks, 3, w.ticks}}
	for _, e := range w.exports {
		if e.kind == 0 {
			e.index = w.shift(e.index)
		}
		all = append(all, e)
	}
	if w.start != nil {
		all = append(all, export{exportStart, 0, w.shift(*w.start)})
	}
	for i, g := range w.globals {
		if g.mutable {
			all = append(all, export{exportGlobal(i), 3, uint32(i)})
		}
	}
	out := vec(nil, len(all))
	for _, e := range all {
		out = append(vec(out, len(e.name)), e.name...)
		out = u32(append(out, e.kind), e.index)
	}
	return out
}

// shift makes room for tick, the last of the imports.
func (w *rewriter) shift(f uint32) uint32 {
	if f >= w.tick {
		return f + 1
	}
	return f
}

// deduct subtracts cost from the counter.
func (w *rewriter) deduct(out []byte, cost uint32) []byte {
	// global.get; i32.const; i32.sub
	out = i32const(u32(append(out, 0x23), w.ticks), int64(cost), 0x6b)
	return u32(append(out, 0x24), w.ticks) // global.set
}

// charge subtracts cost from the counter, and asks the host when it is spent. local is a scratch
// i32.
func (w *rewriter) charge(out []byte, local, cost uint32) []byte {
	return w.subtract(i32const(u32(append(out, 0x23), w.ticks), int64(cost), 0x6b), local)
}

// chargeBytes charges for an access to as many bytes as local n says.
func (w *rewriter) chargeBytes(out []byte, local uint32, n byte) []byte {
	out = i32const(u32(append(out, 0x23), w.ticks), costCall, 0x6b)
	// n >> 3; i32.sub
	return w.subtract(append(i32const(append(out, 0x20, n), 3, 0x76), 0x6b), local)
}

func (w *rewriter) subtract(out []byte, local uint32) []byte {
	out = u32(append(out, 0x22), local)         // local.tee
	out = u32(append(out, 0x24), w.ticks)       // global.set
	return w.ask(u32(append(out, 0x20), local)) // local.get
}

// ask calls the host when the counter, which is on the stack, is spent.
func (w *rewriter) ask(out []byte) []byte {
	out = append(i32const(out, 0, 0x4c), 4, 64) // i32.const 0; i32.le_s; if
	out = u32(append(out, 0x10), w.more)        // call
	return append(out, 0x0b)                    // end
}

// moreBody asks the host, and adds the quantum that it gives: what was overspent is carried on.
func (w *rewriter) moreBody() []byte {
	out := u32([]byte{0, 0x10}, w.tick)                 // no locals; call
	out = append(u32(append(out, 0x23), w.ticks), 0x6a) // global.get; i32.add
	return append(u32(append(out, 0x24), w.ticks), 0x0b)
}

// function appends one body, rewritten, to out.
func (w *rewriter) function(out []byte, t signature, c code) ([]byte, error) {
	params := uint32(len(t.params))
	p, err := w.plan(c, params)
	if err != nil {
		return nil, err
	}
	scratch := params + c.n
	out = append(u32(out, c.groups+1), c.locals...)
	out = append(out, 1, typeI32)
	from := 0
	for _, e := range p.edits {
		out = append(out, c.body[from:e.at]...)
		from = e.at + e.drop
		switch e.kind {
		case editCharge:
			switch {
			case e.check && e.free:
				out = w.ask(u32(append(out, 0x23), w.ticks)) // global.get
			case e.check:
				out = w.charge(out, scratch, e.value)
			case !e.free:
				out = w.deduct(out, e.value+p.extra)
			}
		case editCall:
			out = u32(append(out, 0x10), e.value)
		case editZero:
			out = append(out, 0)
		}
	}
	return append(out, c.body[from:]...), nil
}

// copyBody is memory.copy in steps: forwards when the target is below the source, backwards
// otherwise, so that overlapping ranges come out right.
func (w *rewriter) copyBody() []byte {
	const to, from, n, scratch, forward = 0, 1, 2, 3, 4
	get := func(out []byte, l byte) []byte { return append(out, 0x20, l) }
	whole := []byte{0x20, to, 0x20, from, 0x20, n, 0xfc, 10, 0, 0}
	out := []byte{1, 2, typeI32}
	// to <= from (unsigned)
	out = append(
		trapOutside(trapOutside(out, to, whole), from, whole),
		0x20,
		to,
		0x20,
		from,
		0x4d,
		0x21,
		forward,
	)
	// loop
	out = append(out, 0x03, 0x40)
	// n <= step
	out = append(i32const(get(out, n), stepSize, 0x4d), 0x04, 0x40)
	out = w.chargeBytes(out, scratch, n)
	// all that is left; return
	out = append(get(get(get(out, to), from), n), 0xfc, 10, 0, 0, 0x0f, 0x0b)
	out = w.charge(out, scratch, costStep)
	out = append(i32const(get(out, n), stepSize, 0x6b), 0x21, n) // n -= step
	out = append(get(out, forward), 0x04, 0x40)
	out = append(i32const(get(get(out, to), from), stepSize, 0xfc), 10, 0, 0)
	out = append(i32const(get(out, to), stepSize, 0x6a), 0x21, to)
	out = append(i32const(get(out, from), stepSize, 0x6a), 0x21, from)
	out = append(out, 0x05) // else: the last step of what is left
	out = append(get(get(out, to), n), 0x6a)
	out = append(get(get(out, from), n), 0x6a)
	out = append(i32const(out, stepSize, 0xfc), 10, 0, 0)
	return append(out, 0x0b, 0x0c, 0, 0x0b, 0x0b) // end if; br loop; end loop; end
}

// fillBody is memory.fill in steps.
func (w *rewriter) fillBody() []byte {
	const to, value, n, scratch = 0, 1, 2, 3
	get := func(out []byte, l byte) []byte { return append(out, 0x20, l) }
	out := append(
		trapOutside([]byte{1, 1, typeI32}, to, []byte{0x20, to, 0x20, value, 0x20, n, 0xfc, 11, 0}),
		0x03,
		0x40,
	)
	out = append(i32const(get(out, n), stepSize, 0x4d), 0x04, 0x40)
	out = w.chargeBytes(out, scratch, n)
	out = append(get(get(get(out, to), value), n), 0xfc, 11, 0, 0x0f, 0x0b)
	out = w.charge(out, scratch, costStep)
	out = append(i32const(get(get(out, to), value), stepSize, 0xfc), 11, 0)
	out = append(i32const(get(out, to), stepSize, 0x6a), 0x21, to)
	out = append(i32const(get(out, n), stepSize, 0x6b), 0x21, n)
	return append(out, 0x0c, 0, 0x0b, 0x0b)
}

// trapOutside does the whole of a bulk instruction when the range of local n bytes at local ptr is
// not all in memory: it then traps before it writes anything, as it should, which its steps would
// not.
func trapOutside(out []byte, ptr byte, whole []byte) []byte {
	const n = 2
	out = append(out, 0x20, ptr, 0xad, 0x20, n, 0xad, 0x7c) // i64(ptr) + i64(n)
	// > i64(memory.size) << 16; if
	out = append(out, 0x3f, 0, 0xad, 0x42, 16, 0x86, 0x56, 0x04, 0x40)
	return append(append(out, whole...), 0x0b)
}

func vec(out []byte, n int) []byte { return u32(out, uint32(n)) }

// LEB128 is Go's varint
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
