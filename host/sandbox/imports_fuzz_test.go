package sandbox

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/sandbox/meter"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// recorder is a door that remembers what went through it.
type recorder struct {
	mu    sync.Mutex // guards ops
	ops   []abi.Op
	texts []string
}

func (r *recorder) Operate(_ context.Context, op abi.Op) (terms.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, op)
	slices.SortStableFunc(r.ops, func(a, b abi.Op) int { // a list has no order
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	return terms.Result{Value: object{"x": strings.Repeat("y", 100)}}, nil
}
func (r *recorder) Log(_ int, text string)             { r.texts = append(r.texts, text) }
func (r *recorder) Progress(_, _ float64, text string) { r.texts = append(r.texts, text) }
func (r *recorder) Read(b []byte) (n int, err error)   { clear(b); return len(b), nil }
func noSleep(_ context.Context, _ time.Duration)       {}
func fixedTime() time.Time                             { return time.Unix(1_700_000_000, 5) }
func dirty(args []uint64, params string) (out []uint64) {
	for k, a := range args {
		if params[k] == typeI32 {
			a |= 0xdeadbeef << 32
		}
		out = append(out, a)
	}
	return out
}

// listed returns what a list asks for, each request read alone, in the order of recorder.
func listed(name string, request []byte) (ops []abi.Op) {
	var all []json.RawMessage
	if _, err := abi.ParseList(name, request); err != nil || json.Unmarshal(request, &all) != nil {
		return nil
	}
	for _, one := range all {
		op, err := abi.ParseOp(name, one)
		if err != nil {
			panic(err)
		}
		ops = append(ops, op)
	}
	slices.SortStableFunc(ops, func(a, b abi.Op) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	return ops
}

// FuzzImports calls each import with any memory and any arguments. It must not panic, except to end
// the instance. What reaches the door is exactly what stood in the memory before the call; the
// upper halves of arguments do not matter; a status is one that docs/abi.md has; text is harmless;
// and only named ranges of memory are written to.
func FuzzImports(f *testing.F) {
	all := map[string]hostFunc{}
	for modName, funcs := range hostFuncs() {
		for name, fn := range funcs {
			if modName != meter.TickModule {
				all[modName+"."+name] = fn
			}
		}
	}
	names := slices.Sorted(maps.Keys(all))
	for k, name := range names {
		_, op, _ := strings.Cut(name, ".")
		request := requests[op]
		args := binary.LittleEndian.AppendUint64(nil, 64)
		args = binary.LittleEndian.AppendUint64(args, uint64(len(request)))
		f.Add(uint16(k), uint16(64), []byte(request), args)
	}
	list := "[" + requests["sftp_get"] + "]"
	f.Add(uint16(slices.Index(names, "caponier_v1.sftp_get")), uint16(64), []byte(list),
		binary.LittleEndian.AppendUint64([]byte{64, 0, 0, 0, 0, 0, 0, 0}, uint64(len(list))))
	f.Add(uint16(slices.Index(names, "caponier_v1.log")), uint16(65500),
		[]byte("\x1b[2J\u202eevil\x00"), []byte("\x04\x00\x00\x00\xff\xff\xff\xff\xdc\xff"))
	h := newHost(f, Options{Warm: -1})
	tool := h.add(module{}.bytes())
	h.ready(tool)
	tmpl := h.plugin(tool).tmpl
	f.Fuzz(func(t *testing.T, which, at uint16, data, raw []byte) {
		name := names[int(which)%len(names)]
		fn := all[name]
		args := make([]uint64, len(fn.params))
		for k := range args {
			if len(raw) >= 8 {
				args[k], raw = binary.LittleEndian.Uint64(raw), raw[8:]
			}
			if fn.params[k] == typeI32 {
				args[k] = uint64(uint32(args[k]))
			}
		}
		once := func(args []uint64) (result uint32, ended any, r *recorder, memory []byte) {
			in, err := tmpl.instantiate(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer in.close()
			view, _ := in.mod.Memory().Read(0, in.mod.Memory().Size())
			copy(view[at:], data)
			r = &recorder{}
			c := &call{door: r, input: []byte(`{"abi":1}`), resp: []byte(`{"r":2}`), max: 1 << 10,
				env: &environment{newCPUScheduler(), fixedTime, noSleep, r, nil}}
			c.turn.scheduler = c.env.scheduler
			defer func() { memory = slices.Clone(view) }()
			defer func() { ended = recover() }()
			return fn.do(c, t.Context(), in.mod.Memory(), args), nil, r, nil
		}
		result, ended, door, memory := once(args)
		if ended != nil && ended != errExited && ended != errOver {
			t.Fatalf("%s%v panicked: %v", name, args, ended)
		}
		_, op, _ := strings.Cut(name, ".")
		_, isOp := requests[op]
		result2, ended2, door2, memory2 := once(dirty(args, fn.params))
		if result != result2 || ended != ended2 || !reflect.DeepEqual(door, door2) ||
			!slices.Equal(memory, memory2) {
			t.Errorf("%s%v depends on the upper halves of its arguments", name, args)
		}
		before := make([]byte, meter.PageSize)
		copy(before[8:], okJSON)
		copy(before[at:], data)
		if isOp {
			want := []abi.Op(nil)
			if ptr, n := args[0], args[1]; ptr+n <= uint64(len(before)) {
				if abi.IsList(before[ptr : ptr+n]) {
					want = listed(op, before[ptr:ptr+n])
				} else if op, err := abi.ParseOp(op, before[ptr:ptr+n]); err == nil {
					want = []abi.Op{op}
				}
			}
			if !reflect.DeepEqual(door.ops, want) {
				t.Errorf("%s%v took %v through the door, want %v", name, args, door.ops, want)
			}
			if result > statusPending {
				t.Errorf("%s%v has the status %d", name, args, result)
			}
			if !slices.Equal(before, memory) {
				t.Errorf("%s%v wrote to the memory", name, args)
			}
		} else if len(door.ops) > 0 {
			t.Errorf("%s%v took %v through the door", name, args, door.ops)
		}
		for _, text := range door.texts {
			if strings.ContainsAny(text, "\x00\x1b\n\u202e") || len(text) > maxNote+len("…") {
				t.Errorf("%s%v gave %q", name, args, text)
			}
		}
		if strings.HasSuffix(op, "_read") && !isOp {
			ptr, n := args[0], min(args[1], 9)
			if result == outOfRange {
				n = 0
			}
			if ptr+n <= uint64(len(before)) {
				copy(memory[ptr:ptr+n], before[ptr:])
			}
			if !slices.Equal(before, memory) {
				t.Errorf("%s%v wrote outside its range", name, args)
			}
		}
	})
}
