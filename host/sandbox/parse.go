package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Limits of a module. They bound what the compiler has to do: its time is quadratic in nesting and
// ignores the context.
const (
	maxModule   = 16 << 20
	maxTypes    = 10_000
	maxParams   = 128
	maxImports  = 200
	maxFuncs    = 100_000
	maxTable    = 65_536
	maxGlobals  = 1_000
	maxExports  = 1_000
	maxSegments = 100_000
	maxCustom   = 1_000
	maxName     = 256
	maxLocals   = 5_000
	maxNesting  = 4_000
	maxNestWork = 80_000_000 // sum over all blocks of their depth
	// sum over all functions of basic blocks * (basic blocks + 100 * loops): gojq needs 0.7e9
	maxWork = 2_000_000_000
	// of a function: (basic blocks + 50 * loops) * locals, what is alive where: gojq needs 0.2e6
	maxLocalWork    = 4_000_000
	maxLocalWorkAll = 12_000_000 // sum over all functions: gojq needs 4e6
	maxBrTargets    = 8_192
	pageSize        = 65_536
)

const (
	typeI32, typeI64, typeF32, typeF64 byte = 0x7f, 0x7e, 0x7d, 0x7c

	reserved = "caponier:" // prefix of the exports that the rewriter adds
)

type (
	signature struct{ params, results string } // one byte for each value type
	imported  struct {
		module, name string
		typ          uint32
	}
	global struct {
		typ     byte
		mutable bool
		init    []byte // constant expression with its end
	}
	export struct {
		name  string
		kind  byte // 0 function, 1 table, 2 memory, 3 global
		index uint32
	}
	segment struct {
		offset uint32
		funcs  []uint32 // of an element segment
		data   []byte   // of a data segment
	}
	code struct {
		locals []byte // the declarations as they stand, without their count
		groups uint32
		n      uint32 // locals, without parameters
		body   []byte
	}
)

// module is a parsed WebAssembly module of the only shape that is run here.
type module struct {
	types     []signature
	imports   []imported
	funcs     []uint32 // type of each defined function
	table     *uint32  // size; nothing can grow it
	memMin    uint32   // pages
	memMax    uint32   // pages; the format's own maximum when none is declared
	hasMem    bool
	globals   []global
	exports   []export
	start     *uint32
	elements  []segment
	data      []segment
	dataCount *uint32
	codes     []code
}

// constant reads an expression that is one constant of the type.
func (r *reader) constant(typ byte) (expr []byte, i32 uint32) {
	begin := r.pos
	op, want := r.byte(), map[byte]byte{typeI32: 0x41, typeI64: 0x42, typeF32: 0x43, typeF64: 0x44}[typ]
	if op != want {
		r.fail("only a constant of the right type may initialise (opcode 0x%02x)", op)
	}
	switch op {
	case 0x41:
		i32 = uint32(r.signed(32))
	case 0x42:
		r.signed(64)
	case 0x43:
		r.take(4)
	case 0x44:
		r.take(8)
	}
	if r.byte() != 0x0b {
		r.fail("only a single constant may initialise")
	}
	return r.b[begin:r.pos], i32
}

// the data count section stands before code
var order = map[byte]int{
	1:  1,
	2:  2,
	3:  3,
	4:  4,
	5:  5,
	6:  6,
	7:  7,
	8:  8,
	9:  9,
	12: 10,
	10: 11,
	11: 12,
}

var errNoMemory = errors.New("the module has no memory of its own")

// parse reads a module and refuses, by name, what is not allowed here. It does not check types: the
// compiler's own validation does, on the rewritten module, and [module.rewrite] checks the indices
// that rewriting could change the meaning of.
func parse(wasm []byte) (*module, error) {
	m, err := read(wasm)
	if err != nil {
		return nil, err
	}
	if !m.hasMem {
		return nil, errNoMemory
	}
	return m, m.checkExports()
}

// read is parse for any module, a plugin or not.
func read(wasm []byte) (*module, error) {
	switch {
	case len(wasm) > maxModule:
		return nil, fmt.Errorf(
			"the module has %d bytes; at most %d are allowed",
			len(wasm),
			maxModule,
		)
	case bytes.HasPrefix(wasm, []byte("\x00asm\x0d\x00\x01\x00")):
		return nil, errors.New(
			"this is a WebAssembly component; only core modules are run: build with GOOS=wasip1 or target wasm32-wasip1",
		)
	case !bytes.HasPrefix(wasm, []byte("\x00asm\x01\x00\x00\x00")):
		return nil, errors.New("this is not a WebAssembly 1.0 module")
	}
	m, r, last, custom := &module{}, &reader{b: wasm, pos: 8}, 0, 0
	for r.more() {
		id := r.byte()
		size := r.u32()
		body := r.take(size)
		if r.err != nil {
			break
		}
		s := &reader{b: r.b[:r.pos], pos: r.pos - len(body)}
		if id == 0 {
			s.name()
			s.pos = len(s.b) // what custom sections hold is for tools, and is dropped
			if custom++; custom > maxCustom {
				r.fail("more than %d custom sections", maxCustom)
				break
			}
		} else if order[id] <= last {
			r.fail("section %d is unknown or out of order", id)
			break
		} else {
			last = order[id]
			m.section(id, s)
		}
		if s.err == nil && s.pos != len(s.b) {
			s.fail("the section is longer than what it holds")
		}
		if s.err != nil {
			return nil, fmt.Errorf("section %d: %w", id, s.err)
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return m, m.check()
}

func (m *module) section(id byte, r *reader) {
	switch id {
	case 1:
		for range r.count("types", maxTypes) {
			if form := r.byte(); form != 0x60 {
				r.fail("type form 0x%02x is not a function", form)
			}
			var s signature
			for range r.count("parameters", maxParams) {
				s.params += string([]byte{r.valType()})
			}
			for range r.count("results (multi-value is off)", 1) {
				s.results += string([]byte{r.valType()})
			}
			m.types = append(m.types, s)
		}
	case 2:
		for range r.count("imports", maxImports) {
			i := imported{module: r.name(), name: r.name()}
			if kind := r.byte(); kind != 0 {
				r.fail(
					"import %s.%s is not a function; a guest brings its own memory, tables and globals",
					i.module,
					i.name,
				)
			}
			i.typ = r.u32()
			m.imports = append(m.imports, i)
		}
	case 3:
		for range r.count("functions", maxFuncs) {
			m.funcs = append(m.funcs, r.u32())
		}
	case 4:
		for range r.count("tables", 1) {
			if t := r.byte(); t != 0x70 {
				r.fail("table of type 0x%02x; only function tables are allowed", t)
			}
			min, _, _ := r.limits("table")
			if min > maxTable {
				r.fail("the table has %d entries; at most %d are allowed", min, maxTable)
			}
			m.table = &min
		}
	case 5:
		for range r.count("memories", 1) {
			var declared bool
			if m.memMin, m.memMax, declared = r.limits("memory"); m.memMin > pageSize ||
				declared && m.memMax > pageSize {
				r.fail(
					"memory of %d to %d pages is over what 32 bits can address",
					m.memMin,
					m.memMax,
				)
			}
			m.memMax, m.hasMem = min(m.memMax, pageSize), true
		}
	case 6:
		for range r.count("globals", maxGlobals) {
			g := global{typ: r.valType()}
			mutable := r.byte()
			if mutable > 1 {
				r.fail("mutability 0x%02x", mutable)
			}
			g.mutable = mutable == 1
			g.init, _ = r.constant(g.typ)
			m.globals = append(m.globals, g)
		}
	case 7:
		seen := map[string]bool{}
		for range r.count("exports", maxExports) {
			e := export{r.name(), r.byte(), r.u32()}
			if e.kind > 3 || seen[e.name] || strings.HasPrefix(e.name, reserved) {
				r.fail("export %q is of an unknown kind, repeated or reserved", e.name)
			}
			seen[e.name] = true
			m.exports = append(m.exports, e)
		}
	case 8:
		f := r.u32()
		m.start = &f
	case 9:
		for range r.count("element segments", maxSegments) {
			if flag := r.u32(); flag != 0 {
				r.fail("element segment of kind %d; only plain active segments are allowed", flag)
			}
			var s segment
			_, s.offset = r.constant(typeI32)
			for range r.count("elements", maxTable) {
				s.funcs = append(s.funcs, r.u32())
			}
			m.elements = append(m.elements, s)
		}
	case 12:
		n := r.u32()
		m.dataCount = &n
	case 10:
		for range r.count("function bodies", maxFuncs) {
			m.codes = append(m.codes, r.code())
		}
	case 11:
		for range r.count("data segments", maxSegments) {
			flag := r.u32()
			if flag != 0 && (flag != 2 || r.u32() != 0) {
				r.fail("data segment of kind %d; only active segments are allowed", flag)
			}
			var s segment
			_, s.offset = r.constant(typeI32)
			s.data = r.take(r.u32())
			m.data = append(m.data, s)
		}
	}
}

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

// check holds what no single section can.
func (m *module) check() error {
	if len(m.funcs) != len(m.codes) {
		return fmt.Errorf(
			"%d functions are declared and %d have bodies",
			len(m.funcs),
			len(m.codes),
		)
	}
	for _, i := range m.imports {
		if int(i.typ) >= len(m.types) {
			return fmt.Errorf("import %s.%s has no type %d", i.module, i.name, i.typ)
		}
	}
	for i, t := range m.funcs {
		if int(t) >= len(m.types) {
			return fmt.Errorf("function %d has no type %d", i, t)
		}
	}
	for _, s := range m.elements {
		if m.table == nil || uint64(s.offset)+uint64(len(s.funcs)) > uint64(*m.table) {
			return fmt.Errorf("an element segment at %d does not fit its table", s.offset)
		}
		for _, f := range s.funcs {
			if f >= m.count() {
				return fmt.Errorf("an element segment names function %d of %d", f, m.count())
			}
		}
	}
	if m.dataCount != nil && int(*m.dataCount) != len(m.data) {
		return fmt.Errorf(
			"%d data segments are announced, and there are %d",
			*m.dataCount,
			len(m.data),
		)
	}
	for _, s := range m.data {
		if uint64(s.offset)+uint64(len(s.data)) > uint64(m.memMin)*pageSize {
			return fmt.Errorf("a data segment at %d does not fit the memory", s.offset)
		}
	}
	if m.start != nil && m.function(*m.start) != (signature{}) {
		return errors.New("the start function is missing, or takes or gives values")
	}
	limit := map[byte]uint32{0: m.count(), 3: uint32(len(m.globals))}
	if m.table != nil {
		limit[1] = 1
	}
	if m.hasMem {
		limit[2] = 1
	}
	for _, e := range m.exports {
		if e.kind == 2 && !m.hasMem {
			return errNoMemory
		}
		if e.index >= limit[e.kind] {
			return fmt.Errorf("export %q names what the module does not have", e.name)
		}
	}
	return nil
}

// checkExports holds a module against what a plugin exports.
func (m *module) checkExports() error {
	want := map[string]string{
		"memory":               "a memory",
		"caponier_v1_call":     "a function () -> i32",
		"caponier_v1_describe": "a function () -> i32",
	}
	for _, e := range m.exports {
		ok := true
		switch e.name {
		case "memory":
			ok = e.kind == 2
		case "caponier_v1_call", "caponier_v1_describe":
			ok = e.kind == 0 && m.function(e.index) == signature{results: string([]byte{typeI32})}
		case "_initialize":
			ok = e.kind == 0 && m.function(e.index) == signature{}
		case "_start":
			return errors.New(
				"the module is a command with _start; build a reactor (-buildmode=c-shared, -mexec-model=reactor)",
			)
		}
		if !ok {
			return fmt.Errorf("export %q has the wrong kind or type", e.name)
		}
		delete(want, e.name)
	}
	for name, what := range want {
		return fmt.Errorf("export %q is missing: a plugin exports %s under that name", name, what)
	}
	return nil
}

// count is how many functions there are, imported ones first.
func (m *module) count() uint32 { return uint32(len(m.imports) + len(m.funcs)) }

// function returns the signature of a function by its index. What does not exist has one that no
// check wants.
func (m *module) function(i uint32) signature {
	switch n := uint32(len(m.imports)); {
	case i < n:
		return m.types[m.imports[i].typ]
	case i < m.count():
		return m.types[m.funcs[i-n]]
	}
	return signature{params: "none"}
}
