package sandbox

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/sandbox/meter"
)

func repeat(b []byte, n int) []byte { return bytes.Repeat(b, n) }

func TestModulesAreRefusedByName(t *testing.T) {
	nested := func(n int) []byte {
		return op(repeat([]byte{0x02, 0x40}, n), repeat([]byte{0x0b}, n), c32(0))
	}
	for name, c := range map[string]struct {
		wasm []byte
		says string
	}{
		"something else": {[]byte("#!/bin/sh\n"), "not a WebAssembly"},
		"nothing":        {nil, "not a WebAssembly"},
		"a component":    {[]byte("\x00asm\x0d\x00\x01\x00"), "component"},
		"more than 16 MiB": {
			append(module{}.bytes(), make([]byte, meter.MaxModule)...), "more than 16777216",
		},
		"a cut module": {module{}.bytes()[:60], "too early"},
		"a module without memory": {
			module{memory: []byte{0}, data: []byte{0}}.bytes(), "no memory of its own",
		},
		"two memories":  {module{memory: []byte{2, 0, 1, 0, 1}}.bytes(), "2 memories"},
		"shared memory": {module{memory: []byte{1, 3, 1, 1}}.bytes(), "shared"},
		"memory over the limit": {
			module{memory: []byte{1, 0, 0x81, 8}}.bytes(), "sandbox.memory_max",
		},
		"two tables": {module{table: []byte{2, 0x70, 0, 1, 0x70, 0, 1}}.bytes(), "2 tables"},
		"a table of 100M entries": {
			module{table: op(1, 0x70, 0, u32(nil, 100_000_000))}.bytes(), "at most 65536",
		},
		"a table of external references": {
			module{table: []byte{1, 0x6f, 0, 1}}.bytes(), "only function tables",
		},
		"table.grow": {
			module{table: []byte{1, 0x70, 0, 1}, call: op(0xd0, 0x70, c32(1), 0xfc, 15, 0)}.bytes(),
			"reference types",
		},
		"table.init": {
			module{
				table: []byte{1, 0x70, 0, 1},
				call:  op(c32(0), c32(0), c32(0), 0xfc, 12, 0, 0, c32(0)),
			}.bytes(),
			"passive segments and table",
		},
		"memory.init": {
			module{call: op(c32(0), c32(0), c32(0), 0xfc, 8, 0, 0, c32(0))}.bytes(),
			"passive segments",
		},
		"a passive data segment": {module{data: []byte{1, 1, 0}}.bytes(), "only active segments"},
		"data outside memory": {
			module{data: dataAt(65535, "ab")}.bytes(), "does not fit the memory",
		},
		"data at an imported offset": {
			module{data: []byte{1, 0, 0x23, 0, 0x0b, 0}}.bytes(), "only a constant",
		},
		"an element outside the table": {
			module{
				table: []byte{1, 0x70, 0, 1}, elements: []byte{1, 0, 0x41, 1, 0x0b, 1, 0},
			}.bytes(),
			"does not fit its table",
		},
		"an element that does not exist": {
			module{
				table: []byte{1, 0x70, 0, 1}, elements: []byte{1, 0, 0x41, 0, 0x0b, 1, 99},
			}.bytes(),
			"names function 99",
		},
		"SIMD": {
			module{call: op(0xfd, 12, make([]byte, 16), 0x1a, c32(0))}.bytes(), "SIMD",
		},
		"threads":    {module{call: op(0xfe, 3, 0, c32(0))}.bytes(), "threads"},
		"tail calls": {module{call: op(0x12, 0)}.bytes(), "tail calls"},
		"exceptions": {
			module{call: op(0x06, 0x40, 0x0b, c32(0))}.bytes(), "exceptions",
		},
		"blocks with several results": {module{call: op(0x02, 0, 0x0b)}.bytes(), "multi-value"},
		"blocks nested 20,000 deep":   {module{call: nested(20_000)}.bytes(), "nested"},
		"very many functions of blocks nested 3,900 deep": {
			module{
				more: [][]byte{
					body(nested(3900)), body(nested(3900)), body(nested(3900)), body(nested(3900)),
					body(nested(3900)), body(nested(3900)), body(nested(3900)), body(nested(3900)),
					body(nested(3900)), body(nested(3900)), body(nested(3900)), body(nested(3900)),
				},
			}.bytes(),
			"in all",
		},
		"100,000 branches in a function": {
			module{call: op(repeat(op(c32(1), 0x04, 0x40, 0x0b), 100_000), c32(0))}.bytes(),
			"too much for the compiler",
		},
		"10,000 loops in a function": {
			module{call: op(repeat([]byte{0x03, 0x40, 0x0b}, 10_000), c32(0))}.bytes(),
			"too much for the compiler",
		},
		"5,000 locals alive in 1,000 loops": {
			module{
				more: [][]byte{
					manyLocals(5000, repeat([]byte{0x03, 0x40}, 1000), useLocals(5000),
						repeat([]byte{0x0b}, 1000)),
				},
			}.bytes(),
			"and 5000 locals are too much",
		},
		"5,000 locals alive in 2,500 ifs": {
			module{more: [][]byte{manyLocals(5000, ifs(2500), useLocals(5000))}}.bytes(),
			"and 5000 locals are too much",
		},
		"functions that are each just small enough": {
			module{
				more: slices.Repeat([][]byte{manyLocals(1000, ifs(1900), useLocals(1000))}, 4),
			}.bytes(),
			"and 1000 locals are too much",
		},
		"a br_table of 10,000 targets": {
			module{more: [][]byte{tables(1, 10_000)}}.bytes(), "at most 8192",
		},
		"1,000 br_tables of 200 targets": {
			module{more: [][]byte{tables(1000, 200)}}.bytes(), "too much for the compiler",
		},
		"100,000 locals": {
			module{more: [][]byte{append(append(vec([]byte{1}, 100_000), typeI32), 0x0b)}}.bytes(),
			"at most 5000",
		},
		"4 billion locals": {
			module{
				more: [][]byte{
					{
						2, 0xff, 0xff, 0xff, 0xff, 0x0f, typeI32, 0xff, 0xff, 0xff, 0xff, 0x0f,
						typeI32, 0x0b,
					},
				},
			}.bytes(),
			"at most 5000",
		},
		"a body without an end": {
			module{more: [][]byte{{0, 0x02, 0x40, 0x0b}}}.bytes(), "does not end",
		},
		"a local that is the rewriter's":  {module{call: op(0x20, 0)}.bytes(), "local 0 of 0"},
		"a global that is the rewriter's": {module{call: op(0x23, 0)}.bytes(), "global 0 of 0"},
		"a call of the rewriter's": {
			module{call: op(callf(3), c32(0))}.bytes(), "function 3 of 3",
		},
		"an indirect call of its type": {
			module{table: []byte{1, 0x70, 0, 1}, call: op(c32(0), 0x11, 2, 0)}.bytes(), "type 2",
		},
		"an export that is reserved": {
			module{nExports: 1, exports: append([]byte{14}, "caponier:ticks\x00\x00"...)}.bytes(),
			"reserved",
		},
		"an export twice": {
			module{nExports: 1, exports: append([]byte{6}, "memory\x02\x00"...)}.bytes(),
			"repeated",
		},
		"a command": {
			module{nExports: 1, exports: append([]byte{6}, "_start\x00\x02"...)}.bytes(), "reactor",
		},
		"an import that does not exist": {
			module{
				imports: []imported{{module: "env", name: "system"}}, types: []signature{{}},
			}.bytes(),
			"env.system does not exist",
		},
		"a socket": {
			module{
				imports: []imported{{module: wasiModule, name: "sock_accept"}},
				types:   []signature{{iii, i}},
			}.bytes(),
			"sock_accept does not exist",
		},
		"the rewriter's import": {
			module{imports: []imported{{module: meter.TickModule, name: meter.TickName}}}.bytes(),
			"does not exist",
		},
		"an import of another type": {
			module{imports: []imported{output}, types: []signature{{iii, i}}}.bytes(), "wrong type",
		},
		"an operation that is not locked": {
			module{imports: []imported{{module: abiModule, name: "sftp_put"}}}.bytes(),
			"sftp_put is an operation that plugins.lock does not list",
		},
		"1,001 custom sections": {
			append(module{}.bytes(), repeat([]byte{0, 2, 1, 'a'}, 1001)...),
			"more than 1000 custom sections",
		},
		"an unknown section": {
			append(module{}.bytes(), 13, 0), "unknown or out of order",
		},
		"a section twice":              {append(module{}.bytes(), 11, 1, 0), "out of order"},
		"a type error":                 {module{call: op(0x42, 0)}.bytes(), "compiling"},
		"a branch out of the function": {module{call: op(0x0c, 5)}.bytes(), "compiling"},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			err := tryCompile(t, c.wasm)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error that says %q", err, c.says)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("refusing it took %s", took)
			}
		})
	}
	if err := tryCompile(t,
		module{custom: append([]byte{0, 5, 4}, "name"...)}.bytes()); err != nil {
		t.Errorf("a plain module is refused: %v", err)
	}
}

func manyLocals(n int, code ...any) []byte {
	return append(append(append(u32([]byte{1}, uint32(n)), typeI32), op(code...)...), 0x0b)
}

// useLocals reads and writes n locals.
func useLocals(n int) (out []byte) {
	for l := range uint32(n) {
		out = u32(append(u32(append(out, 0x20), l), 0x21), (l+1)%uint32(n))
	}
	return out
}

func ifs(n int) []byte { return repeat(op(c32(1), 0x04, 0x40, c32(1), 0x21, 0, 0x0b), n) }

func tables(n, targets int) []byte {
	return manyLocals(
		1,
		repeat(
			op(0x02, 0x40, 0x20, 0, 0x0e, u32(nil, uint32(targets)), repeat([]byte{0}, targets+1),
				0x0b),
			n,
		),
	)
}

// TestAdmittedModulesCompileInBoundedTime compiles modules just inside the limits, for each of
// which the compiler needs more than linear time.
func TestAdmittedModulesCompileInBoundedTime(t *testing.T) {
	n := 1
	if slack > 0 {
		n = 5 // the race detector slows the compiler that much
	}
	for name, m := range map[string][]byte{
		"nested blocks": bomb(),
		"ifs":           module{more: [][]byte{body(ifs1(10_000 / n))}}.bytes(),
		"locals alive in ifs": module{
			more: [][]byte{manyLocals(2500, ifs(790/n), useLocals(2500))},
		}.bytes(),
		"locals alive in loops": module{
			more: [][]byte{
				manyLocals(70, repeat([]byte{0x03, 0x40}, 1000/n), useLocals(70),
					repeat([]byte{0x0b}, 1000/n)),
			},
		}.bytes(),
		"br_tables": module{more: [][]byte{tables(800/n, 100)}}.bytes(),
	} {
		t.Run(name, func(t *testing.T) {
			began, elapsed := cpuTime(), time.Now()
			if err := tryCompile(t, m); err != nil {
				t.Fatalf("it is refused, so that this shows nothing: %v", err)
			}
			t.Logf("%d bytes took %s of processor time, %s in all", len(m), cpuTime()-began,
				time.Since(elapsed))
			if took := cpuTime() - began; took > 30*time.Second {
				t.Errorf("compiling %d bytes took %s", len(m), took)
			}
		})
	}
}

// ifs1 are ifs without locals.
func ifs1(n int) []byte { return repeat(op(c32(1), 0x04, 0x40, 0x0b), n) }

func TestNumbersOfTablesMayBeOverlong(t *testing.T) {
	h := newHost(t, Options{})
	// the second as LLVM writes it today
	for _, table := range [][]byte{{0}, {0x80, 0x80, 0x80, 0x80, 0}} {
		g := module{
			imports:  []imported{output},
			table:    []byte{1, 0x70, 0, 1},
			elements: []byte{1, 0, 0x41, 0, 0x0b, 1, 4},
			more:     [][]byte{body(op(c32(8), c32(int64(len(okJSON))), callf(0), 0x1a))},
			call:     op(c32(0), 0x11, 1, table, c32(0)),
		}
		want(t, h.call(h.add(g.bytes()), object{}), "")
	}
}

func tryCompile(t testing.TB, wasm []byte) error {
	_, rewritten, err := load(wasm, []string{"ssh_exec"}, 64<<20)
	if err != nil {
		return err
	}
	s, err := New(context.Background(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	_, err = s.compile(context.Background(), rewritten, func() {})
	return err
}

func TestAddRefusesAnotherDigest(t *testing.T) {
	h := newHost(t, Options{})
	tool := toolOf(module{}.bytes())
	if err := h.box.Add(tool.Plugin, module{call: op(0x00)}.bytes(), nil); err == nil ||
		!strings.Contains(err.Error(), "plugins.lock says") {
		t.Errorf("got %v", err)
	}
	want(t, h.call(tool, object{}), "plugin_unavailable")
}

func TestAModuleThatRewritingRefusesIsUnavailable(t *testing.T) {
	h := newHost(t, Options{})
	a := h.call(h.add(module{call: op(0xfd, 12)}.bytes()), object{})
	want(t, a, "plugin_unavailable")
	if a.Err == nil || !strings.Contains(a.Err.Error(), "SIMD") {
		t.Errorf("the error is %v", a.Err)
	}
}
