package meter

import (
	"fmt"
	"unicode/utf8"
)

// reader reads the binary format. It keeps the first error; every later read returns zero.
type reader struct {
	b   []byte
	pos int
	err error
}

func (r *reader) fail(format string, a ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("at byte %d: "+format, append([]any{r.pos}, a...)...)
		r.pos = len(r.b)
	}
}

func (r *reader) more() bool { return r.err == nil && r.pos < len(r.b) }

func (r *reader) byte() byte {
	if r.pos >= len(r.b) {
		r.fail("the module ends too early")
		return 0
	}
	r.pos++
	return r.b[r.pos-1]
}

func (r *reader) take(n uint32) []byte {
	if uint64(n) > uint64(len(r.b)-r.pos) {
		r.fail("the module ends too early")
		return nil
	}
	r.pos += int(n)
	return r.b[r.pos-int(n) : r.pos]
}

// u32 reads an unsigned LEB128 number of at most 32 bits, which may be padded to five bytes.
func (r *reader) u32() (v uint32) {
	for shift := 0; shift < 35; shift += 7 {
		b := r.byte()
		if shift == 28 && b > 0x0f {
			break
		}
		if v |= uint32(b&0x7f) << shift; b < 0x80 {
			return v
		}
	}
	r.fail("a number is longer than 32 bits")
	return 0
}

// signed reads a signed LEB128 number of the given bits, sign-extended to 64.
func (r *reader) signed(bits int) (v int64) {
	for shift := 0; shift < bits; shift += 7 {
		b := r.byte()
		v |= int64(b&0x7f) << shift
		if b < 0x80 {
			if left := bits - shift; left < 7 { // the unused bits must repeat the sign
				if top := int8(b<<1) >> left; top != 0 && top != -1 {
					break
				}
			}
			if shift+7 < 64 && b&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
	r.fail("a number is longer than %d bits", bits)
	return 0
}

// count reads how many of something follow.
func (r *reader) count(what string, max uint32) uint32 {
	n := r.u32()
	if n > max {
		r.fail("%d %s; at most %d are allowed", n, what, max)
		return 0
	}
	return n
}

// room returns for how many of n things to make room: each is at least two bytes of what is left.
func (r *reader) room(n uint32) int { return min(int(n), (len(r.b)-r.pos)/2) }

func (r *reader) indices(what string, max uint32) (all []uint32) {
	for range r.count(what, max) {
		all = append(all, r.u32())
	}
	return all
}

func (r *reader) name() string {
	b := r.take(r.count("bytes in a name", maxName))
	if !utf8.Valid(b) {
		r.fail("a name is not UTF-8")
	}
	return string(b)
}

func (r *reader) valType() byte {
	t := r.byte()
	switch {
	case r.err != nil || t >= F64 && t <= I32:
	case t == 0x7b:
		r.fail("type v128 needs SIMD, which is off")
	case t == 0x70 || t == 0x6f:
		r.fail("reference types are off")
	default:
		r.fail("0x%02x is not a value type", t)
	}
	return t
}

func (r *reader) valTypes(what string, max uint32) string {
	types := make([]byte, r.count(what, max))
	for k := range types {
		types[k] = r.valType()
	}
	return string(types)
}

func (r *reader) limits(what string) (min, max uint32, hasMax bool) {
	flag := r.byte()
	if flag > 1 {
		r.fail("%s is shared or 64-bit (flag 0x%02x), which is off", what, flag)
		return
	}
	if min, max = r.u32(), ^uint32(0); flag == 1 {
		if max, hasMax = r.u32(), true; max < min {
			r.fail("%s: minimum %d is over its maximum %d", what, min, max)
		}
	}
	return
}

// constant reads an expression that is one constant of the type. i32 is its value if it is an i32.
func (r *reader) constant(typ byte) (expr []byte, i32 uint32) {
	begin := r.pos
	switch op := r.byte(); {
	case op == opI32Const && typ == I32:
		i32 = uint32(r.signed(32))
	case op == opI64Const && typ == I64:
		r.signed(64)
	case op == opF32Const && typ == F32:
		r.take(4)
	case op == opF64Const && typ == F64:
		r.take(8)
	default:
		r.fail("only a constant of the right type may initialise (opcode 0x%02x)", op)
	}
	if r.byte() != opEnd {
		r.fail("only a single constant may initialise")
	}
	return r.b[begin:r.pos], i32
}

// code is the body of one function.
type code struct {
	locals []byte // the declarations as they stand, without their count
	groups uint32
	n      uint32 // locals, without parameters
	body   []byte
}

// code reads the body of one function.
func (r *reader) code() (c code) {
	body := r.take(r.u32())
	b := &reader{b: r.b[:r.pos], pos: r.pos - len(body)}
	c.groups = b.count("groups of locals", maxLocals)
	begin := b.pos
	for range c.groups {
		n := b.count("locals", maxLocals)
		b.valType()
		if c.n += n; c.n > maxLocals {
			b.fail("more than %d locals in a function", maxLocals)
		}
	}
	if b.err != nil && r.err == nil {
		r.err = b.err
		return
	}
	if r.err == nil {
		c.locals, c.body = b.b[begin:b.pos], b.b[b.pos:]
	}
	return c
}
