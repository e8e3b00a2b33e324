package sandbox

import "fmt"

type editKind byte

const (
	editCharge editKind = iota // charge value here
	editCall                   // replace by a call of value
	editZero                   // replace by a zero of one byte
)

type edit struct {
	at, drop int
	kind     editKind
	value    uint32
	check    bool // ask the host here when the counter is spent: at entries and loop headers
	free     bool // no charge, since nothing gets here or the next place charges for it
	busy     bool // there is more here than a way to the next place
}

// plan says how a body changes. A piece of code is charged for, whole, at the one place that every
// way into it passes: a loop header, the end of a block that began before the piece did, or the end
// of the piece before when that had grown long. Inner loops are pieces of their own. So no way from
// one place to the next is longer than what was paid. The host is asked at entries and loop
// headers, which every cycle passes, and at every place of a function that is so long that it could
// outrun a deadline between them.
type plan struct {
	edits []edit // the first charges for the entry
	// edits that cost goes to: the current piece of the function and of each loop around
	points []int
	total  uint32
	extra  uint32 // what the dearest header that is free would have cost
	blocks uint64 // basic blocks, about; a place that asks makes two
	loops  uint64
}

type block struct {
	loop  bool
	point int // the piece that it began in
}

// point adds a place that charges.
func (p *plan) point(at int) int {
	p.edits = append(p.edits, edit{at: at})
	return len(p.edits) - 1
}

func (p *plan) cost(n uint32) {
	p.here().value += n
	p.total += n
}

// next starts a new piece.
func (p *plan) next(at int) { p.points[len(p.points)-1] = p.point(at) }

func (p *plan) here() *edit { return &p.edits[p.points[len(p.points)-1]] }

// plan reads every instruction of a body, and refuses those that are off by the name of what they
// need.
func (w *rewriter) plan(c code, params uint32) (plan, error) {
	r := &reader{b: c.body}
	p := plan{edits: w.edits[:0], points: w.points[:0]} // one body at a time
	defer func() { w.edits, w.points = p.edits, p.points }()
	p.points = append(p.points, p.point(0))
	p.here().check = true
	p.cost(2 + params + c.n>>3)             // locals are zeroed at entry, as far as they are in use
	blocks := append(w.blocks[:0], block{}) // those around, and the function itself
	for r.more() && len(blocks) > 0 {
		at := r.pos
		op := r.byte()
		if op != 0x02 { // a block is no code
			p.cost(1)
		}
		p.here().busy = p.here().busy || op == 0x04 || op == 0x0d || op == 0x10 || op == 0x11 ||
			op == 0xfc
		switch {
		case op == 0x02 || op == 0x03 || op == 0x04: // block loop if
			if t := r.byte(); t != 0x40 && (t < typeF64 || t > typeI32) {
				r.fail(
					"block type 0x%02x needs multi-value, SIMD or reference types, which are off",
					t,
				)
			}
			p.blocks += 2
			blocks = append(blocks, block{op == 0x03, p.points[len(p.points)-1]})
			if op == 0x03 {
				// as Go's compiler begins most functions
				if e := p.here(); p.points[len(p.points)-1] == 0 && !e.busy && e.value <= maxFree {
					e.free, e.check = true, false // paid by the call
				}
				p.loops++
				p.points = append(p.points, p.point(r.pos))
				p.here().check = true
			}
			if w.nestWork += len(blocks); len(blocks) > maxNesting || w.nestWork > maxNestWork {
				r.fail(
					"blocks are nested %d deep, %d in all: too much for the compiler (at most %d and %d)",
					len(blocks),
					w.nestWork,
					maxNesting,
					maxNestWork,
				)
			}
		case op == 0x0b: // end
			b := blocks[len(blocks)-1]
			if blocks = blocks[:len(blocks)-1]; b.loop {
				p.points = p.points[:len(p.points)-1]
			} else if len(blocks) > 0 && b.point != p.points[len(p.points)-1] {
				p.next(r.pos)
			}
		case op == 0x05: // else
			if blocks[len(blocks)-1].point != p.points[len(p.points)-1] {
				p.next(r.pos)
			}
		case op == 0x0c || op == 0x0d: // br br_if
			r.u32()
			p.blocks++
		case op == 0x0e: // br_table
			p.cost(2)
			e := p.here()
			// unless the next, a header that only leads on is paid where it leads to
			e.free = e.check && !e.busy && e.value <= maxFree
			n := r.count("targets of a br_table", maxBrTargets) + 1
			p.blocks += uint64(n) / 2 // of the cost of a block, as measured
			for range n {
				if l := r.u32(); int(l) >= len(blocks) {
					r.fail("branch out of %d blocks of %d", l, len(blocks))
				} else if blocks[len(blocks)-1-int(l)].loop {
					e.free = false
				}
			}
			if e.free {
				p.extra = max(p.extra, e.value)
			}
			p.next(r.pos) // nothing gets here, and what was begun before is charged where it ends
			p.here().free = true
		case op == 0x10: // call
			f := r.u32()
			if f >= w.count() {
				r.fail("call of function %d of %d", f, w.count())
			}
			p.cost(costCall)
			p.edits = append(
				p.edits,
				edit{at: at, drop: r.pos - at, kind: editCall, value: w.shift(f)},
			)
		case op == 0x11: // call_indirect
			p.cost(costSlow)
			t, begin := r.u32(), r.pos
			if table := r.u32(); int(t) >= len(w.types) || table != 0 {
				r.fail(
					"indirect call of type %d in table %d, which the module does not have",
					t,
					table,
				)
			} else if n := r.pos - begin; n > 1 {
				// today's toolchains leave room for a larger number
				p.edits = append(p.edits, edit{at: begin, drop: n, kind: editZero})
			}
		case op >= 0x20 && op <= 0x22: // local.get set tee
			if l := r.u32(); l >= params+c.n {
				r.fail("local %d of %d", l, params+c.n)
			}
		case op == 0x23 || op == 0x24: // global.get set
			if g := r.u32(); int(g) >= len(w.globals) {
				r.fail("global %d of %d", g, len(w.globals))
			}
		case op >= 0x28 && op <= 0x3e: // load store
			p.cost(costAccess)
			r.u32()
			r.u32()
		case op == 0x3f || op == 0x40: // memory.size grow
			if op == 0x40 {
				p.cost(costGrow)
			}
			if r.byte() != 0 {
				r.fail("memory other than 0")
			}
		case op == 0x41:
			r.signed(32)
		case op == 0x42:
			r.signed(64)
		case op == 0x43:
			r.take(4)
		case op == 0x44:
			r.take(8)
		case op == 0xfc:
			w.prefixed(r, &p, at)
		case op >= 0x6d && op <= 0x70,
			op >= 0x7f && op <= 0x82,
			op == 0x91,
			op == 0x95,
			op == 0x9f,
			op == 0xa3:
			// div rem sqrt
			p.cost(costSlow)
		case op <= 0x01, op == 0x0f, op == 0x1a, op == 0x1b, op >= 0x45 && op <= 0xc4:
			// no immediates
		default:
			r.fail("%s", off(op))
		}
		if r.err == nil && len(blocks) > 0 && p.here().value > maxPiece {
			p.next(r.pos)
		}
	}
	w.blocks = blocks[:0]
	if r.err == nil && (len(blocks) > 0 || r.pos != len(r.b)) {
		r.fail("the body does not end where its blocks do")
	}
	for k := range p.edits {
		e := &p.edits[k]
		if e.check = e.kind == editCharge && (e.check || !e.free && p.total > maxUnasked); e.check {
			p.blocks += 2
		}
	}
	if w.work += p.blocks * (p.blocks + 100*p.loops); w.work > maxWork {
		r.fail(
			"functions with %d branches and %d loops are too much for the compiler",
			p.blocks,
			p.loops,
		)
	}
	work := (p.blocks + 50*p.loops) * uint64(params+c.n)
	if w.localWork += work; work > maxLocalWork || w.localWork > maxLocalWorkAll {
		r.fail(
			"functions with %d branches, %d loops and %d locals are too much for the compiler",
			p.blocks,
			p.loops,
			params+c.n,
		)
	}
	return p, r.err
}

func (w *rewriter) prefixed(r *reader, p *plan, at int) {
	switch sub := r.u32(); {
	case sub <= 7: // saturating conversion
	case sub == 10 || sub == 11: // memory.copy fill
		to := w.copy
		zero := r.byte()
		if sub == 10 {
			zero |= r.byte()
		} else {
			to = w.fill
		}
		if zero != 0 {
			r.fail("memory other than 0")
		}
		p.cost(costCall)
		p.edits = append(p.edits, edit{at: at, drop: r.pos - at, kind: editCall, value: to})
	case sub <= 14:
		r.fail("passive segments and table instructions (0xfc %d) are off", sub)
	default:
		r.fail("instruction 0xfc %d is off (reference types)", sub)
	}
}

// off names the feature that an instruction belongs to.
func off(op byte) string {
	feature := "is not an instruction"
	switch {
	case op == 0x06 || op == 0x07 || op == 0x08 || op == 0x09 || op == 0x0a || op == 0x18 || op == 0x19 || op == 0x1f:
		feature = "needs exceptions, which are off"
	case op == 0x12 || op == 0x13:
		feature = "needs tail calls, which are off"
	case op == 0x1c || op == 0x25 || op == 0x26 || op >= 0xd0 && op <= 0xd6 || op == 0x14 || op == 0x15:
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
