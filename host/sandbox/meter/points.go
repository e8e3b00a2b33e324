package meter

import "fmt"

const (
	maxPiece   = 4_000  // from here on, straight code is charged for in pieces
	maxUnasked = 20_000 // the longest function that asks only at its entry and its loop headers
	maxFree    = 32     // the most that an entry may do without a charge

	costAccess = 4  // a load may miss every cache
	costSlow   = 10 // division, square root, indirect calls
	costCall   = 10
	costGrow   = 2_000
)

const (
	editCharge = iota // charge value here
	editCall          // replace by a call of value
	editZero          // replace by a zero of one byte
)

// edit is one change of a body.
type edit struct {
	at, drop int
	kind     int
	value    uint32
	check    bool // ask the host here when the counter is spent: at entries and loop headers
	free     bool // no charge: the code is unreachable, or the next place charges for it
	busy     bool // the piece does more than lead to the next place
}

// placer decides how a body changes. A piece of code is charged for, whole, at the one place that
// every path into it passes: a loop header, the end of a block that began before the piece did, or
// the end of the piece before when that had grown long. Inner loops are pieces of their own. So no
// path from one place to the next is longer than what was paid. The host is asked at entries and
// loop headers, which every cycle passes, and at every place of a function that is so long that it
// could outrun a deadline between them.
type placer struct {
	*Module
	tick, copy, fill uint32 // indices of functions that are added
	nestWork         int    // of all bodies so far, as are the next two
	work, localWork  uint64

	r      *reader // of the body, as is all that follows
	locals uint32  // with the parameters
	edits  []edit  // the first charges for the entry
	// the edits that are charged: of the current piece of the function and of each loop around
	pieces []int
	open   []block // the blocks around, and the function itself
	total  uint32  // cost of the whole body
	extra  uint32  // the largest cost of a header that is free
	basic  uint64  // basic blocks, about; a place that asks makes two
	loops  uint64
}

type block struct {
	loop  bool
	piece int // that it began in
}

// place reads every instruction of a body, and refuses those that are off by the name of the
// feature that they need.
func (p *placer) place(c code, params uint32) error {
	p.r, p.locals = &reader{b: c.body}, params+c.n
	p.edits, p.pieces, p.open = p.edits[:0], p.pieces[:0], append(p.open[:0], block{})
	p.total, p.extra, p.basic, p.loops = 0, 0, 0, 0
	p.pieces = append(p.pieces, p.point(0))
	p.here().check = true
	p.cost(2 + params + c.n>>3) // locals are zeroed at entry, as far as they are in use
	for p.r.more() && len(p.open) > 0 {
		p.instruction()
		if p.r.err == nil && len(p.open) > 0 && p.here().value > maxPiece {
			p.next()
		}
	}
	if p.r.err == nil && (len(p.open) > 0 || p.r.pos != len(c.body)) {
		p.r.fail("the body does not end where its blocks do")
	}
	for k := range p.edits {
		e := &p.edits[k]
		e.check = e.kind == editCharge && (e.check || !e.free && p.total > maxUnasked)
		if e.check {
			p.basic += 2
		}
	}
	p.bound()
	return p.r.err
}

// bound refuses a body that the compiler would need too long for.
func (p *placer) bound() {
	if p.work += p.basic * (p.basic + 100*p.loops); p.work > maxWork {
		p.r.fail("functions with %d branches and %d loops are too much for the compiler",
			p.basic, p.loops)
	}
	work := (p.basic + 50*p.loops) * uint64(p.locals)
	if p.localWork += work; work > maxLocalWork || p.localWork > maxLocalWorkAll {
		p.r.fail("functions with %d branches, %d loops and %d locals are too much for the compiler",
			p.basic, p.loops, p.locals)
	}
}

// shift makes room for tick, the last of the imports.
func (p *placer) shift(f uint32) uint32 {
	if f >= p.tick {
		return f + 1
	}
	return f
}

// point adds a place that charges.
func (p *placer) point(at int) int {
	p.edits = append(p.edits, edit{at: at})
	return len(p.edits) - 1
}

func (p *placer) cost(n uint32) {
	p.here().value += n
	p.total += n
}

// piece returns the index of the current piece among the edits.
func (p *placer) piece() int { return p.pieces[len(p.pieces)-1] }

func (p *placer) here() *edit { return &p.edits[p.piece()] }

// next starts a new piece at the position of the reader.
func (p *placer) next() { p.pieces[len(p.pieces)-1] = p.point(p.r.pos) }

// instruction reads one instruction.
func (p *placer) instruction() {
	r, at := p.r, p.r.pos
	op := r.byte()
	if op != opBlock { // a block is no code
		p.cost(1)
	}
	if op == opIf || op == opBrIf || op == opCall || op == opCallIndirect || op == opPrefix {
		p.here().busy = true
	}
	switch {
	case op >= opBlock && op <= opIf:
		p.begin(op)
	case op == opEnd:
		p.end()
	case op == opElse:
		if p.open[len(p.open)-1].piece != p.piece() {
			p.next()
		}
	case op == opBr || op == opBrIf:
		r.u32()
		p.basic++
	case op == opBrTable:
		p.brTable()
	case op == opCall:
		f := r.u32()
		if f >= p.count() {
			r.fail("call of function %d of %d", f, p.count())
		}
		p.cost(costCall)
		p.replace(at, editCall, p.shift(f))
	case op == opCallIndirect:
		p.callIndirect()
	case op >= opLocalGet && op <= opLocalTee:
		if l := r.u32(); l >= p.locals {
			r.fail("local %d of %d", l, p.locals)
		}
	case op == opGlobalGet || op == opGlobalSet:
		if g := r.u32(); int(g) >= len(p.globals) {
			r.fail("global %d of %d", g, len(p.globals))
		}
	case op == opPrefix:
		p.prefixed(at)
	default:
		p.plain(op)
	}
}

// plain reads the immediates of an instruction that neither branches nor names anything.
func (p *placer) plain(op byte) {
	r := p.r
	switch {
	case op >= 0x28 && op <= 0x3e: // loads and stores
		p.cost(costAccess)
		r.u32()
		r.u32()
	case op == opMemorySize || op == opMemoryGrow:
		if op == opMemoryGrow {
			p.cost(costGrow)
		}
		if r.byte() != 0 {
			r.fail("memory other than 0")
		}
	case op == opI32Const:
		r.signed(32)
	case op == opI64Const:
		r.signed(64)
	case op == opF32Const:
		r.take(4)
	case op == opF64Const:
		r.take(8)
	case op >= 0x6d && op <= 0x70, op >= 0x7f && op <= 0x82, op == 0x91, op == 0x95,
		op == 0x9f, op == 0xa3: // division, remainder, square root
		p.cost(costSlow)
	case op <= 0x01, op == opReturn, op == 0x1a, op == 0x1b, op >= 0x45 && op <= 0xc4:
		// no immediates
	default:
		r.fail("%s", off(op))
	}
}

// replace replaces what was read since at.
func (p *placer) replace(at int, kind int, value uint32) {
	p.edits = append(p.edits, edit{at: at, drop: p.r.pos - at, kind: kind, value: value})
}

// begin opens a block, loop or if.
func (p *placer) begin(op byte) {
	if t := p.r.byte(); t != noResult && (t < F64 || t > I32) {
		p.r.fail("block type 0x%02x needs multi-value, SIMD or reference types, which are off", t)
	}
	p.basic += 2
	p.open = append(p.open, block{op == opLoop, p.piece()})
	if op == opLoop {
		// as Go's compiler begins most functions: paid by the call
		if e := p.here(); p.piece() == 0 && !e.busy && e.value <= maxFree {
			e.free, e.check = true, false
		}
		p.loops++
		p.pieces = append(p.pieces, p.point(p.r.pos))
		p.here().check = true
	}
	if p.nestWork += len(p.open); len(p.open) > maxNesting || p.nestWork > maxNestWork {
		p.r.fail("blocks are nested %d deep, %d in all: too much for the compiler "+
			"(at most %d and %d)", len(p.open), p.nestWork, maxNesting, maxNestWork)
	}
}

func (p *placer) end() {
	b := p.open[len(p.open)-1]
	if p.open = p.open[:len(p.open)-1]; b.loop {
		p.pieces = p.pieces[:len(p.pieces)-1]
	} else if len(p.open) > 0 && b.piece != p.piece() {
		p.next()
	}
}

func (p *placer) brTable() {
	p.cost(2)
	e := p.here()
	// a header that only leads on is paid at its targets, unless one of them is a loop
	e.free = e.check && !e.busy && e.value <= maxFree
	n := p.r.count("targets of a br_table", maxBrTargets) + 1
	p.basic += uint64(n) / 2 // of the cost of a block, as measured
	for range n {
		if l := p.r.u32(); int(l) >= len(p.open) {
			p.r.fail("branch out of %d blocks of %d", l, len(p.open))
		} else if p.open[len(p.open)-1-int(l)].loop {
			e.free = false
		}
	}
	if e.free {
		p.extra = max(p.extra, e.value)
	}
	p.next() // unreachable; blocks that began before are charged at their end
	p.here().free = true
}

func (p *placer) callIndirect() {
	p.cost(costSlow)
	t := p.r.u32()
	begin := p.r.pos
	if table := p.r.u32(); int(t) >= len(p.types) || table != 0 {
		p.r.fail("indirect call of type %d in table %d, which the module does not have", t, table)
	} else if p.r.pos-begin > 1 { // today's toolchains leave room for a larger number
		p.replace(begin, editZero, 0)
	}
}

// prefixed reads the rest of an instruction of two opcodes.
func (p *placer) prefixed(at int) {
	switch sub := p.r.u32(); {
	case sub <= 7: // saturating conversion
	case sub == 10 || sub == 11: // memory.copy, memory.fill
		to, zero := p.fill, p.r.byte()
		if sub == 10 {
			to, zero = p.copy, zero|p.r.byte()
		}
		if zero != 0 {
			p.r.fail("memory other than 0")
		}
		p.cost(costCall)
		p.replace(at, editCall, to)
	case sub <= 14:
		p.r.fail("passive segments and table instructions (0xfc %d) are off", sub)
	default:
		p.r.fail("instruction 0xfc %d is off (reference types)", sub)
	}
}

// off names the feature that an instruction belongs to.
func off(op byte) string {
	feature := "is not an instruction"
	switch {
	case op >= 0x06 && op <= 0x0a || op == 0x18 || op == 0x19 || op == 0x1f:
		feature = "needs exceptions, which are off"
	case op == 0x12 || op == 0x13:
		feature = "needs tail calls, which are off"
	case op == 0x1c || op == 0x25 || op == 0x26 || op >= 0xd0 && op <= 0xd6 ||
		op == 0x14 || op == 0x15:
		feature = "needs reference types, which are off"
	case op == 0xfb:
		feature = "needs garbage collection, which is off"
	case op == 0xfd:
		feature = "needs SIMD, which is off"
	case op == 0xfe:
		feature = "needs threads, which are off"
	}
	return fmt.Sprintf("instruction 0x%02x %s", op, feature)
}
