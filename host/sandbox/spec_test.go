package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/sandbox/meter"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// specDirs returns the folders of the WebAssembly specification's core tests in the module of
// wazero, as wabt's wast2json made them.
func specDirs(t *testing.T) []string {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").
		Output()
	if err != nil {
		t.Fatal(err)
	}
	tests := filepath.Join(strings.TrimSpace(string(out)), "internal/integration_test/spectest")
	dirs := []string{filepath.Join(tests, "v2/testdata"), filepath.Join(tests, "v1/testdata")}
	if slack > 0 {
		return dirs[:1] // the newer of the two is enough under the race detector
	}
	return dirs
}

type specValue struct {
	Type  string `json:"type"`
	Value any    `json:"value"` // of a v128 it is a list
}

func (v specValue) bits() uint64 {
	text, _ := v.Value.(string)
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

type specCommand struct {
	Type       string `json:"type"`
	Line       int    `json:"line"`
	Name, As   string
	Filename   string `json:"filename"`
	ModuleType string `json:"module_type"`
	Text       string `json:"text"`
	Action     struct {
		Type, Module, Field string
		Args                []specValue
	}
	Expected []specValue
}

// twin is one module twice: as it is in plain wazero, and admitted, rewritten and started from its
// template.
type twin struct{ raw, ours api.Module }

type specRun struct {
	ctx     context.Context
	raw, rt wazero.Runtime
	dir     string
	env     environment
	// a module was refused, or lacks one that it imports from: the specification's expectations do
	// not hold
	alone    bool
	refused  map[string]int // why a valid module was not admitted, by the words of the error
	asserted map[string]int // by kind of command
}

func newSpecRun(t *testing.T) *specRun {
	r := &specRun{
		env:      environment{newCPUScheduler(), time.Now, sleep, nil, nil},
		refused:  map[string]int{},
		asserted: map[string]int{},
	}
	r.ctx = context.WithValue(t.Context(), callKey{}, &call{door: noDoor{}, env: &r.env})
	printing := map[string]hostFunc{}
	for name, params := range map[string]string{
		"print": noArgs, "print_i32": i, "print_i64": long, "print_f32": "\x7d",
		"print_f64": "\x7c", "print_i32_f32": "\x7f\x7d", "print_f64_f64": "\x7c\x7c",
	} {
		printing[name] = hostFunc{
			params,
			noArgs,
			func(*call, context.Context, api.Memory, arguments) uint32 { return 0 },
		}
	}
	for _, rt := range []*wazero.Runtime{&r.raw, &r.rt} {
		*rt = wazero.NewRuntimeWithConfig(r.ctx,
			wazero.NewRuntimeConfig().WithCoreFeatures(features))
		t.Cleanup(func() { (*rt).Close(context.Background()) })
		if err := register(r.ctx, *rt,
			map[string]map[string]hostFunc{
				"spectest": printing, meter.TickModule: hostFuncs()[meter.TickModule],
			}); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// ours takes a module the way of a plugin, without the checks of a plugin's imports and exports.
func (r *specRun) ours(wasm []byte) (mod api.Module, gate bool, err error) {
	m, err := meter.Parse(wasm)
	if err != nil {
		return nil, true, err
	}
	rewritten, err := m.Rewrite()
	if err != nil {
		return nil, true, err
	}
	compiled, err := r.rt.CompileModule(r.ctx, rewritten)
	if err != nil {
		return nil, false, err
	}
	t, _, err := newTemplate(r.ctx, r.rt, &source{m, compiled}, &r.env, maxMemory, 0)
	if err != nil {
		return nil, false, err
	}
	defer t.image.Close()
	in, err := t.instantiate(r.ctx)
	if err != nil {
		return nil, false, err
	}
	return in.mod, false, nil
}

// module makes a twin. It returns nil for a module that is not admitted; one that wazero refuses
// must be refused.
func (r *specRun) module(t *testing.T, c specCommand) *twin {
	wasm, err := os.ReadFile(filepath.Join(r.dir, c.Filename))
	if err != nil {
		t.Fatal(err)
	}
	raw, rawErr := r.plain(wasm)
	ours, gate, err := r.ours(wasm)
	r.alone = r.alone || rawErr != nil || err != nil
	switch {
	case rawErr == nil && err == nil:
		return &twin{raw, ours}
	case rawErr != nil && err == nil:
		t.Errorf("line %d: %s is refused by wazero (%v) and taken by us", c.Line, c.Filename,
			rawErr)
	case rawErr == nil && !gate:
		t.Errorf("line %d: %s runs as it is, and rewritten: %v", c.Line, c.Filename, err)
	case rawErr == nil:
		_, why, _ := strings.Cut(err.Error(), "at byte ")
		_, why, _ = strings.Cut(why, ": ")
		r.refused[why]++
	}
	return nil
}

// plain is wazero alone, which panics for some modules that use reference types when those are off.
func (r *specRun) plain(wasm []byte) (mod api.Module, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return r.raw.InstantiateWithConfig(r.ctx, wasm,
		wazero.NewModuleConfig().WithName("").WithStartFunctions())
}

func invoke(ctx context.Context, m api.Module, c specCommand) ([]uint64, string) {
	f := m.ExportedFunction(c.Action.Field)
	var args []uint64
	for _, a := range c.Action.Args {
		args = append(args, a.bits())
	}
	res, err := f.Call(ctx, args...)
	if err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		return nil, line
	}
	for k, t := range f.Definition().ResultTypes() { // the upper half of 32 bits is anything
		if t == typeI32 || t == typeF32 {
			res[k] = uint64(uint32(res[k]))
		}
	}
	return slices.Clone(res), ""
}

// act runs an action on both, and compares the results and the memory.
func (r *specRun) act(t *testing.T, on *twin, c specCommand) {
	if c.Action.Type == "get" {
		if a, b := on.raw.ExportedGlobal(
			c.Action.Field).Get(), on.ours.ExportedGlobal(c.Action.Field).Get(); a != b {
			t.Errorf("line %d: global %s is %x as it is, %x rewritten", c.Line, c.Action.Field, a,
				b)
		}
		return
	}
	a, trapA := invoke(r.ctx, on.raw, c)
	b, trapB := invoke(r.ctx, on.ours, c)
	if trapA != trapB || len(a) != len(b) {
		t.Errorf("line %d: %s gives %x %q as it is, %x %q rewritten", c.Line, c.Action.Field, a,
			trapA, b, trapB)
		return
	}
	for k := range a {
		want, _ := c.Expected[k].Value.(string)
		nan := strings.HasPrefix(want, "nan")
		if a[k] != b[k] ||
			!nan && c.Type == "assert_return" && !r.alone && b[k] != c.Expected[k].bits() {
			t.Errorf("line %d: %s gives %x as it is, %x rewritten, and should give %s", c.Line,
				c.Action.Field, a[k], b[k], want)
		}
	}
	if failed := trapB != ""; !r.alone &&
		failed != (c.Type == "assert_trap" || c.Type == "assert_exhaustion") {
		t.Errorf("line %d: %s ended with %q", c.Line, c.Action.Field, trapB)
	}
	if m := on.ours.Memory(); m.Size() > 0 && m.Size() <= 1<<20 {
		after, _ := m.Read(0, m.Size())
		if before, _ := on.raw.Memory().Read(0, on.raw.Memory().Size()); !bytes.Equal(before,
			after) {
			t.Errorf("line %d: %s leaves another memory when rewritten", c.Line, c.Action.Field)
		}
	}
}

// TestTheSpecificationsTestsRunTheSameRewritten checks that every admitted module has the same
// results, traps and memory as it is and rewritten, that these are the specification's, and that
// what is not valid or cannot be instantiated is refused.
func TestTheSpecificationsTestsRunTheSameRewritten(t *testing.T) {
	total, refused := map[string]int{}, map[string]int{}
	for _, dir := range specDirs(t) {
		files, err := filepath.Glob(filepath.Join(dir, "*.json"))
		if err != nil || len(files) < 50 {
			t.Fatalf("%d files of tests in %s, %v", len(files), dir, err)
		}
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".json")
			if strings.HasPrefix(name, "simd_") {
				continue // off: refused by the first instruction
			}
			t.Run(filepath.Base(filepath.Dir(dir))+"/"+name, func(t *testing.T) {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				var list struct{ Commands []specCommand }
				if err := json.Unmarshal(text, &list); err != nil {
					t.Fatal(err)
				}
				r := newSpecRun(t)
				r.dir = dir
				r.run(t, list.Commands)
				for k, n := range r.asserted {
					total[k] += n
				}
				for k, n := range r.refused {
					refused[k] += n
				}
			})
		}
	}
	t.Logf("checked %v; valid modules that the gate refuses: %v", total, refused)
	for kind, least := range map[string]int{
		"module": 500, "assert_return": 15_000, "assert_trap": 400, "assert_exhaustion": 10,
		"assert_invalid": 900, "assert_malformed": 100,
	} {
		if total[kind] < least {
			t.Errorf("%d commands of kind %s were checked, at least %d should be", total[kind],
				kind, least)
		}
	}
}

func (r *specRun) run(t *testing.T, commands []specCommand) {
	named, last := map[string]*twin{}, (*twin)(nil)
	for _, c := range commands {
		on := last
		if c.Action.Module != "" {
			on = named[c.Action.Module]
		}
		switch c.Type {
		case "module":
			last = r.module(t, c)
			named[c.Name] = last
			if last == nil {
				continue
			}
		case "assert_return", "action", "assert_trap", "assert_exhaustion":
			if on == nil {
				continue // of a module that was refused
			}
			r.act(t, on, c)
		case "assert_invalid", "assert_malformed", "assert_unlinkable", "assert_uninstantiable":
			if c.ModuleType == "text" {
				continue
			}
			wasm, err := os.ReadFile(filepath.Join(r.dir, c.Filename))
			if err != nil {
				t.Fatal(err)
			}
			if m, err := meter.Parse(wasm); err == nil && !m.HasMemory() &&
				strings.HasPrefix(c.Text, "unknown memory") {
				// a plugin without a memory is refused; here it gets one, so that the numeric tests
				// can run
				break
			}
			if _, _, err := r.ours(wasm); err == nil {
				t.Errorf("line %d: %s (%s) is taken: %s", c.Line, c.Filename, c.Type, c.Text)
			}
		default:
			continue
		}
		r.asserted[c.Type]++
	}
}
