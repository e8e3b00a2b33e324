package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/sandbox/meter"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// The imports that are no operations: data of the call itself, and notes, which the decision of the
// call grants.
var dataImports, noteImports = []string{
	"input_len", "input_read", "output_write", "resp_len", "resp_read",
}, []string{"log", "progress"}

// TestTheABIIsDataNotesAndOperations checks that there are no imports of another kind, that each is
// documented in docs/abi.md, and that nothing else can be linked.
func TestTheABIIsDataNotesAndOperations(t *testing.T) {
	all := hostFuncs()
	if got, want := slices.Sorted(
		maps.Keys(all)), []string{meter.TickModule, abiModule, wasiModule}; !slices.Equal(got,
		slices.Sorted(slices.Values(want))) {
		t.Fatalf("modules that can be imported: %v, want %v", got, want)
	}
	known := slices.Concat(dataImports, noteImports, abi.Operations())
	if got := slices.Sorted(maps.Keys(all[abiModule])); !slices.Equal(got,
		slices.Sorted(slices.Values(known))) {
		t.Errorf("imports %v, want %v", got, known)
	}
	page, err := os.ReadFile("../../docs/abi.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range known {
		if !bytes.Contains(page, []byte("| `"+name+"` |")) {
			t.Errorf("docs/abi.md has no line for %s", name)
		}
	}
	for _, name := range abi.Operations() {
		if f := all[abiModule][name]; f.params != ii || f.results != i {
			t.Errorf("%s is not (ptr, len) -> status", name)
		}
	}
}

// TestEveryOperationGoesThroughTheDoor checks that each operation of the ABI is journaled before it
// is executed, and is not executed when it is refused or when its intent cannot be written.
func TestEveryOperationGoesThroughTheDoor(t *testing.T) {
	known := func(name string) bool { return requests[name] != "" }
	if missing := slices.DeleteFunc(abi.Operations(), known); len(missing) > 0 {
		t.Fatalf("operations without a request here: %v", missing)
	}
	for _, name := range abi.Operations() {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, Options{})
			tool := h.add(asker(name, requests[name]).bytes())
			h.execute = func(q terms.Question) (terms.Result, error) {
				if r := h.records[len(h.records)-1]; r.Type != "intent" || r.Op != name ||
					q.Op.Import() != name {
					t.Errorf("%s is done when the last record is %s of %q", q.Op.Import(), r.Type,
						r.Op)
				}
				return terms.Result{}, nil
			}
			a := h.call(tool, object{})
			want(t, a, "")
			if !strings.HasPrefix(string(a.Output.JSON), `[0,{`) ||
				!slices.Equal(h.executed, []string{name}) {
				t.Fatalf("allowed: output %s, executed %v", a.Output.JSON, h.executed)
			}
			for says, stop := range map[string]func(){
				`"failed":["test.no"]`: func() {
					h.decide = func(q terms.Question) terms.Decision {
						if q.Kind == terms.KindCall {
							return terms.Decision{Allow: true, Tier: terms.Green, Revision: "test"}
						}
						return terms.Decision{
							Tier: terms.Green, Failed: []string{"test.no"}, Revision: "test",
						}
					}
				},
				`"failed":[`: func() {
					h.decide = func(q terms.Question) terms.Decision {
						return terms.Decision{
							Allow: q.Kind == terms.KindCall, Tier: terms.Green,
							Revision: map[bool]string{true: "test"}[q.Kind == terms.KindCall],
						}
					}
				}, // the zero decision
				`journal`: func() {
					h.intent = func(r terms.Record) error {
						if r.Op == name {
							return errors.New("the disk is full")
						}
						return nil
					}
				},
			} {
				h.decide, h.intent, h.executed, h.records = nil, nil, nil, nil
				stop()
				a := h.call(tool, object{})
				want(t, a, "")
				if !strings.HasPrefix(string(a.Output.JSON), `[2,{"decision_id":"`) ||
					!strings.Contains(string(a.Output.JSON), says) {
					t.Errorf("refused: output %s, want %s", a.Output.JSON, says)
				}
				if len(h.executed) != 0 || len(a.Refused) != 1 {
					t.Errorf("refused: executed %v, remembered %v", h.executed, a.Refused)
				}
			}
		})
	}
}

// keeper keeps the *gate.Running of a call beyond the end of the call.
type keeper struct {
	*Sandbox
	kept *gate.Running
}

func (k *keeper) Run(ctx context.Context, r *gate.Running) (terms.Output, error) {
	k.kept = r
	return k.Sandbox.Run(ctx, r)
}

func TestAnEndedCallIsAnsweredWithAStatus(t *testing.T) {
	for _, name := range abi.Operations() {
		h := newHost(t, Options{})
		k := &keeper{Sandbox: h.box}
		h.openDoor(k)
		tool := h.add(asker(name, requests[name]).bytes())
		want(t, h.call(tool, object{}), "")
		h.executed = nil
		out, err := h.box.Run(t.Context(), k.kept)
		if err != nil || !regexp.MustCompile(`^\[[124],\{`).Match(out.JSON) || len(h.executed) > 0 {
			t.Errorf("%s after its call: %s, %v, executed %v", name, out.JSON, err, h.executed)
		}
	}
}

// TestReEntry calls the same plugin again, many deep, while an instance waits for an operation:
// each call has an instance of its own.
func TestReEntry(t *testing.T) {
	h := newHost(t, Options{MaxInstances: 64}) // one principal has a quarter of them
	tool := h.add(asker("stage", requests["stage"]).bytes())
	depth := 0
	h.execute = func(terms.Question) (terms.Result, error) {
		if depth++; depth < 10 {
			want(t, h.call(tool, object{}), "")
		}
		return terms.Result{Value: object{"dir": fmt.Sprint(depth)}}, nil
	}
	a := h.call(tool, object{})
	want(t, a, "")
	if string(a.Output.JSON) != `[0,{"dir":"10"}]` || depth != 10 {
		t.Errorf("%s at depth %d", a.Output.JSON, depth)
	}
}

// TestARequestIsReadOnce checks that the decided request is executed, although the module has the
// response written over the bytes of the request.
func TestARequestIsReadOnce(t *testing.T) {
	g := asker("stage", requests["stage"])
	// the response over the request
	g.call = op(
		c32(64),
		c32(int64(len(requests["stage"]))),
		callf(1),
		0x1a,
		c32(64),
		c32(8),
		callf(3),
		0x1a,
		// which is then asked again
		c32(64),
		c32(int64(len(requests["stage"]))),
		callf(1),
		c32('0'),
		0x6a,
		0x3a,
		0,
		0,
	)
	// 32 stays on the stack
	g.call = op(c32(32), c32(64), c32(int64(len(requests["stage"]))), callf(1), 0x1a, c32(64),
		c32(8), callf(3), 0x1a, c32(64), c32(int64(len(requests["stage"]))), callf(1), c32('0'),
		0x6a, 0x3a, 0, 0, c32(32), c32(1), callf(0), 0x1a, c32(0))
	h := newHost(t, Options{})
	h.execute = func(q terms.Question) (terms.Result, error) {
		return terms.Result{Value: object{"dir": "/tmp/x"}}, nil
	}
	a := h.call(h.add(g.bytes()), object{})
	want(t, a, "")
	if string(a.Output.JSON) != "4" || len(h.executed) != 1 {
		t.Errorf("the second request had status %s after %v, want 4: its bytes were the response's",
			a.Output.JSON, h.executed)
	}
}

// TestPointersAndLengths checks the answers to ranges that lie outside memory, wrap or overlap, and
// to numbers with dirty upper halves.
func TestPointersAndLengths(t *testing.T) {
	const n = int64(len(okJSON))
	status := func(call ...any) []byte {
		return op(c32(32), op(call...), c32(5), 0x6a, c32('0'), 0x6a, 0x3a, 0, 0, c32(32), c32(1),
			callf(0), 0x1a, c32(0))
	} // -1 is '4', 0 is '5', 4 is '9'
	imports := []imported{
		output, {module: abiModule, name: "input_read"}, {module: abiModule, name: "ssh_exec"},
		{module: abiModule, name: "resp_read"},
	}
	extend := func(v int64) []byte {
		return op(0x42, i32const(nil, v, 0x01)[1:], 0x42, 0x80, 0x80, 0x80, 0x80, 0xf0, 0x7f, 0x84,
			0xa7)
	} // i32.wrap of v with ones above
	for name, c := range map[string]struct {
		call []byte
		want string
	}{
		"output from memory": {
			op(c32(8), c32(n), callf(0), 0x1a, c32(0)), okJSON,
		},
		"output from beyond memory":                    {status(c32(65536), c32(1), callf(0)), "4"},
		"output of no bytes at the end of memory":      {status(c32(65536), c32(0), callf(0)), "5"},
		"output that begins in and ends out of memory": {status(c32(65535), c32(2), callf(0)), "4"},
		"output of 0xffffffff bytes":                   {status(c32(8), c32(-1), callf(0)), "4"},
		"output at 0xffffffff":                         {status(c32(-1), c32(1), callf(0)), "4"},
		"output that wraps around to 0":                {status(c32(-8), c32(16), callf(0)), "4"},
		"input to beyond memory": {
			status(c32(65530), c32(100), callf(1)), "4",
		},
		"input of 0xffffffff bytes":    {status(c32(0), c32(-1), callf(1)), "4"},
		"a request from beyond memory": {status(c32(65536), c32(9), callf(2)), "9"},
		"a request that wraps around":  {status(c32(-1), c32(-1), callf(2)), "9"},
		"a request of no bytes":        {status(c32(0), c32(0), callf(2)), "9"},
		"a response to beyond memory":  {status(c32(65535), c32(2), callf(3)), "4"},
		"dirty upper halves":           {op(extend(8), extend(n), callf(0), 0x1a, c32(0)), okJSON},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, Options{})
			a := h.call(
				h.add(module{memory: []byte{1, 1, 1, 1}, imports: imports, call: c.call}.bytes()),
				object{})
			want(t, a, "")
			if string(a.Output.JSON) != c.want {
				t.Errorf("gave %s, want %s", a.Output.JSON, c.want)
			}
			if len(h.executed) > 0 {
				t.Errorf("%v was executed", h.executed)
			}
		})
	}
	// as a compiler may leave them, whatever this one does
	for i, v := range []uint64{0xdead_beef_0000_0008, 8, 1<<63 | 8} {
		if got := (arguments{v}).i32(0); got != 8 {
			t.Errorf("argument %d was read as %x", i, got)
		}
	}
}

// TestInstancesReachNoFileOrSocket checks that no package of wazero that gives modules files or
// sockets is in the binary. wazero's core has code for files, which needs a configuration that is
// never made here: an instance has no open file and no way to open one.
func TestInstancesReachNoFileOrSocket(t *testing.T) {
	out, err := exec.Command("go", "tool", "nm", "../../build/caponier").Output()
	if err != nil {
		t.Fatalf("reading the symbols of build/caponier (make all): %v", err)
	}
	if !bytes.Contains(out, []byte("github.com/tetratelabs/wazero.NewRuntimeWithConfig")) {
		t.Fatal("the symbols do not even name wazero")
	}
	for _, bad := range []string{
		"wazero/imports/", "wazero/experimental/sock.", "wazero/experimental/sysfs.",
		"wazero.NewFSConfig", "sysfs.DirFS", "sysfs.NewTCPListenerFile",
	} {
		for line := range bytes.Lines(out) {
			if bytes.Contains(line, []byte(bad)) {
				t.Errorf("%s is linked: %s", bad, line)
			}
		}
	}
	h := newHost(t, Options{})
	tool := h.add(module{imports: []imported{output}, call: ok()}.bytes())
	want(t, h.call(tool, object{}), "")
	in, err := h.plugin(tool).tmpl.instantiate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer in.close()
	fsc := reflect.ValueOf(in.mod).Elem().FieldByName("Sys").MethodByName("FS").Call(nil)[0]
	for fd := range int32(64) {
		found := fsc.MethodByName("LookupFile").Call([]reflect.Value{reflect.ValueOf(fd)})
		if known := found[1].Bool(); known != (fd < 3) {
			t.Errorf("an instance has the descriptor %d: %v", fd, known)
		}
	}
}
