// Package meter rewrites WebAssembly modules so that a host can stop them. A rewritten module also
// counts what it computes and can start from any state. The package turns bytes into bytes: it
// compiles and runs nothing.
//
//	m, err := meter.Parse(wasm)    // refuses by name what is not allowed
//	rewritten, err := m.Rewrite()  // what to compile in place of wasm
//
// The host that runs the result provides one import, [TickModule].[TickName]: () -> i32. The
// module calls it when it has used up its quantum; it returns the units of the next quantum
// ([Quantum]), or panics to end the call. The host writes [Module.Memory] into the memory, then
// calls the export [ExportStart] if there is one. The memory and the mutable globals, which are
// exported under the names of [Module.MutableGlobals], are then all the state that there is.
package meter

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

const reserved = "caponier:" // prefix of the exports that Rewrite adds

// Kind of an export.
type Kind byte

const Function, Table, Memory, Global Kind = 0, 1, 2, 3

type (
	// Func is the type of a function: one byte for each value type.
	Func struct{ Params, Results string }

	// Import is a function that the module imports. There are no imports of other kinds.
	Import struct {
		Module, Name string
		Type         Func
		typ          uint32
	}

	// Export is what the module exports under a name.
	Export struct {
		Name  string
		Kind  Kind
		Type  Func // of a function
		index uint32
	}

	global struct {
		typ     byte
		mutable byte   // 0 or 1
		init    []byte // constant expression with its end
	}
	segment struct {
		offset uint32
		funcs  []uint32 // of an element segment
		data   []byte   // of a data segment
	}
)

// Module is a parsed WebAssembly module. It refers to the bytes that it was parsed from, which
// must not change while it is used.
type Module struct {
	types     []Func
	imports   []Import
	funcs     []uint32 // type of each defined function
	table     *uint32  // size; nothing can grow it
	memMin    uint32   // pages
	memMax    uint32   // pages; the format's own maximum when none is declared
	hasMem    bool
	globals   []global
	exports   []Export
	start     *uint32
	elements  []segment
	data      []segment
	dataCount *uint32
	codes     []code
}

// sections holds the place of each section in the order of the format, and its reader. The data
// count section stands before the code.
var sections = map[byte]struct {
	order int
	read  func(*Module, *reader)
}{
	1:  {1, (*Module).readTypes},
	2:  {2, (*Module).readImports},
	3:  {3, func(m *Module, r *reader) { m.funcs = r.indices("functions", maxFuncs) }},
	4:  {4, (*Module).readTable},
	5:  {5, (*Module).readMemory},
	6:  {6, (*Module).readGlobals},
	7:  {7, (*Module).readExports},
	8:  {8, func(m *Module, r *reader) { f := r.u32(); m.start = &f }},
	9:  {9, (*Module).readElements},
	12: {10, func(m *Module, r *reader) { n := r.u32(); m.dataCount = &n }},
	10: {11, func(m *Module, r *reader) {
		n := r.count("function bodies", maxFuncs)
		m.codes = make([]code, 0, r.room(n))
		for range n {
			m.codes = append(m.codes, r.code())
		}
	}},
	11: {12, (*Module).readData},
}

// ErrNoMemory says that a module does not define a memory.
var ErrNoMemory = errors.New("the module has no memory of its own")

// Parse reads a module and refuses, by name, what is not allowed here. It does not check types:
// the compiler's validation of the rewritten module does. [Module.Rewrite] checks those indices
// whose meaning rewriting could change.
func Parse(wasm []byte) (*Module, error) {
	switch {
	case len(wasm) > MaxModule:
		return nil, fmt.Errorf("the module has %d bytes, more than %d", len(wasm), MaxModule)
	case bytes.HasPrefix(wasm, []byte("\x00asm\x0d\x00\x01\x00")):
		return nil, errors.New("this is a WebAssembly component; only core modules can be run: " +
			"build with GOOS=wasip1 or target wasm32-wasip1")
	case !bytes.HasPrefix(wasm, []byte("\x00asm\x01\x00\x00\x00")):
		return nil, errors.New("this is not a WebAssembly 1.0 module")
	}
	m, r, last, custom := &Module{}, &reader{b: wasm, pos: 8}, 0, 0
	for r.more() {
		id := r.byte()
		body := r.take(r.u32())
		if r.err != nil {
			break
		}
		s := &reader{b: r.b[:r.pos], pos: r.pos - len(body)}
		section := sections[id]
		if id == 0 { // custom sections are for tools; they are dropped
			s.name()
			s.pos = len(s.b)
			if custom++; custom > maxCustom {
				r.fail("more than %d custom sections", maxCustom)
				break
			}
		} else if section.order <= last {
			r.fail("section %d is unknown or out of order", id)
			break
		} else {
			last = section.order
			section.read(m, s)
		}
		if s.err == nil && s.pos != len(s.b) {
			s.fail("the section is longer than its contents")
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

func (m *Module) readTypes(r *reader) {
	for range r.count("types", maxTypes) {
		if form := r.byte(); form != 0x60 {
			r.fail("type form 0x%02x is not a function", form)
		}
		m.types = append(m.types, Func{r.valTypes("parameters", maxParams),
			r.valTypes("results (multi-value is off)", 1)})
	}
}

func (m *Module) readImports(r *reader) {
	for range r.count("imports", maxImports) {
		i := Import{Module: r.name(), Name: r.name()}
		if kind := r.byte(); kind != 0 {
			r.fail("import %s.%s is not a function; a module has its own memory, table and globals",
				i.Module, i.Name)
		}
		i.typ = r.u32()
		m.imports = append(m.imports, i)
	}
}

func (m *Module) readTable(r *reader) {
	for range r.count("tables", 1) {
		if t := r.byte(); t != 0x70 {
			r.fail("table of type 0x%02x; only function tables are allowed", t)
		}
		min, _, _ := r.limits("table")
		if min > MaxTable {
			r.fail("the table has %d entries; at most %d are allowed", min, MaxTable)
		}
		m.table = &min
	}
}

func (m *Module) readMemory(r *reader) {
	for range r.count("memories", 1) {
		low, high, declared := r.limits("memory")
		if low > PageSize || declared && high > PageSize {
			r.fail("memory of %d to %d pages is over what 32 bits can address", low, high)
		}
		m.memMin, m.memMax, m.hasMem = low, min(high, PageSize), true
	}
}

func (m *Module) readGlobals(r *reader) {
	for range r.count("globals", maxGlobals) {
		g := global{typ: r.valType(), mutable: r.byte()}
		if g.mutable > 1 {
			r.fail("mutability 0x%02x", g.mutable)
		}
		g.init, _ = r.constant(g.typ)
		m.globals = append(m.globals, g)
	}
}

func (m *Module) readExports(r *reader) {
	seen := map[string]bool{}
	for range r.count("exports", maxExports) {
		e := Export{Name: r.name(), Kind: Kind(r.byte()), index: r.u32()}
		if e.Kind > Global || seen[e.Name] || strings.HasPrefix(e.Name, reserved) {
			r.fail("export %q is of an unknown kind, repeated or reserved", e.Name)
		}
		seen[e.Name] = true
		m.exports = append(m.exports, e)
	}
}

func (m *Module) readElements(r *reader) {
	for range r.count("element segments", maxSegments) {
		if flag := r.u32(); flag != 0 {
			r.fail("element segment of kind %d; only plain active segments are allowed", flag)
		}
		var s segment
		_, s.offset = r.constant(I32)
		s.funcs = r.indices("elements", MaxTable)
		m.elements = append(m.elements, s)
	}
}

func (m *Module) readData(r *reader) {
	n := r.count("data segments", maxSegments)
	m.data = make([]segment, 0, r.room(n))
	for range n {
		flag := r.u32()
		if flag != 0 && (flag != 2 || r.u32() != 0) {
			r.fail("data segment of kind %d; only active segments are allowed", flag)
		}
		var s segment
		_, s.offset = r.constant(I32)
		s.data = r.take(r.u32())
		m.data = append(m.data, s)
	}
}

// check holds the module against the rules that span sections, and resolves types.
func (m *Module) check() error {
	if len(m.funcs) != len(m.codes) {
		return fmt.Errorf("%d functions are declared, %d have bodies", len(m.funcs), len(m.codes))
	}
	for k, i := range m.imports {
		if int(i.typ) >= len(m.types) {
			return fmt.Errorf("import %s.%s has no type %d", i.Module, i.Name, i.typ)
		}
		m.imports[k].Type = m.types[i.typ]
	}
	for i, t := range m.funcs {
		if int(t) >= len(m.types) {
			return fmt.Errorf("function %d has no type %d", i, t)
		}
	}
	if err := m.checkSegments(); err != nil {
		return err
	}
	if m.start != nil && m.function(*m.start) != (Func{}) {
		return errors.New("the start function is missing, or takes or returns values")
	}
	limit := map[Kind]uint32{Function: m.count(), Global: uint32(len(m.globals))}
	if m.table != nil {
		limit[Table] = 1
	}
	if m.hasMem {
		limit[Memory] = 1
	}
	for k, e := range m.exports {
		if e.Kind == Memory && !m.hasMem {
			return ErrNoMemory
		}
		if e.index >= limit[e.Kind] {
			return fmt.Errorf("export %q names what the module does not have", e.Name)
		}
		if e.Kind == Function {
			m.exports[k].Type = m.function(e.index)
		}
	}
	return nil
}

func (m *Module) checkSegments() error {
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
		return fmt.Errorf("%d data segments are announced, not %d", *m.dataCount, len(m.data))
	}
	for _, s := range m.data {
		if uint64(s.offset)+uint64(len(s.data)) > uint64(m.memMin)*PageSize {
			return fmt.Errorf("a data segment at %d does not fit the memory", s.offset)
		}
	}
	return nil
}

// count returns the number of functions, imported ones included. Those come first.
func (m *Module) count() uint32 { return uint32(len(m.imports) + len(m.funcs)) }

// function returns the type of a function by its index. A function that does not exist has a type
// that no check accepts.
func (m *Module) function(i uint32) Func {
	switch n := uint32(len(m.imports)); {
	case i < n:
		return m.types[m.imports[i].typ]
	case i < m.count():
		return m.types[m.funcs[i-n]]
	}
	return Func{Params: "none"}
}

// Imports returns the imported functions in the order of the module.
func (m *Module) Imports() []Import { return m.imports }

// Exports returns the exports in the order of the module. Names are unique.
func (m *Module) Exports() []Export { return m.exports }

// HasMemory reports whether the module defines a memory.
func (m *Module) HasMemory() bool { return m.hasMem }

// Pages returns the size of the memory at the start, in pages of [PageSize].
func (m *Module) Pages() uint32 { return m.memMin }

// Memory returns the memory at the start: zeros, and the data segments over them.
func (m *Module) Memory() []byte {
	memory := make([]byte, uint64(m.memMin)*PageSize)
	for _, s := range m.data {
		copy(memory[s.offset:], s.data)
	}
	return memory
}

// MutableGlobals returns the names under which [Module.Rewrite] exports the mutable globals.
func (m *Module) MutableGlobals() (names []string) {
	for i, g := range m.globals {
		if g.mutable == 1 {
			names = append(names, exportGlobal(i))
		}
	}
	return names
}

func exportGlobal(i int) string { return fmt.Sprint(reserved, "global", i) }
