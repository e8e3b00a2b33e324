package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/sandbox/meter"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// source is an admitted and compiled module.
type source struct {
	module   *meter.Module
	compiled wazero.CompiledModule
}

// template is a compiled module with the state that every call starts from: memory and mutable
// globals as they are after the module's own initialisation. Nothing else in a module can change.
type template struct {
	rt       wazero.Runtime
	compiled wazero.CompiledModule
	image    *image
	globals  []savedGlobal
	limit    uint64 // bytes of memory
}

type savedGlobal struct {
	name  string
	value uint64
}

// instance is a running module in the template's state, for one call.
type instance struct {
	mod     api.Module
	memory  *memory
	call    api.Function // with its stack, which the next call finds as large as it became
	ticks   api.MutableGlobal
	globals []api.MutableGlobal // in the template's order
	of      string              // the principal of its last call; empty before the first
}

// newTemplate starts a compiled module, and keeps what it then is. The start ends with ctx, and
// when it has computed or slept for longer than limit; 0 for no limit.
func newTemplate(
	ctx context.Context, rt wazero.Runtime, src *source, env *environment, memory int64,
	limit time.Duration,
) (t *template, stderr []byte, err error) {
	data := src.module.Memory()
	first, err := newImage(data, uint64(len(data)))
	if err != nil {
		return nil, nil, err
	}
	defer first.Close()
	raw := &template{rt: rt, compiled: src.compiled, image: first, limit: uint64(memory)}
	in, err := raw.instantiate(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer in.close()
	c := &call{door: noDoor{}, env: env, limit: int64(limit)}
	for _, name := range []string{meter.ExportStart, "_initialize"} {
		if f := in.mod.ExportedFunction(name); f != nil {
			if _, err := in.run(ctx, c, f); err != nil {
				return nil, c.stderr, fmt.Errorf("starting the plugin (%s): %w", name, err)
			}
		}
	}
	view, _ := in.mod.Memory().Read(0, in.mod.Memory().Size())
	kept, err := newImage(view, uint64(len(view)))
	if err != nil {
		return nil, c.stderr, err
	}
	t = &template{rt: rt, compiled: src.compiled, image: kept, limit: uint64(memory)}
	for _, name := range src.module.MutableGlobals() {
		t.globals = append(t.globals, savedGlobal{name, in.mod.ExportedGlobal(name).Get()})
	}
	return t, c.stderr, nil
}

// instantiate makes an instance in the template's state.
func (t *template) instantiate(ctx context.Context) (in *instance, err error) {
	in = &instance{memory: &memory{image: t.image, max: t.limit}}
	defer func() {
		if p := recover(); p != nil { // wazero panics when its allocator has no memory to give
			in.memory.Free()
			in, err = nil, fmt.Errorf("making an instance: %v", p)
		}
	}()
	in.mod, err = t.rt.InstantiateModule(experimental.WithMemoryAllocator(ctx, in.memory),
		t.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		in.memory.Free()
		return nil, fmt.Errorf("making an instance: %w", err)
	}
	mem := in.mod.Memory()
	if more := uint32(t.image.size/meter.PageSize) - mem.Size()/meter.PageSize; more > 0 {
		if _, ok := mem.Grow(more); !ok {
			in.close()
			return nil, errors.New("making an instance: its memory could not be restored")
		}
	}
	in.call = in.mod.ExportedFunction("caponier_v1_call")
	in.ticks = in.mod.ExportedGlobal(meter.ExportTicks).(api.MutableGlobal)
	for _, g := range t.globals {
		in.globals = append(in.globals, in.mod.ExportedGlobal(g.name).(api.MutableGlobal))
	}
	in.restore(t)
	return in, nil
}

func (in *instance) restore(t *template) {
	for i, g := range t.globals {
		in.globals[i].Set(g.value)
	}
	in.ticks.Set(meter.Quantum)
}

// reset brings an instance that has returned from its call back to the template's state: memory is
// restored from the image, and all mutable globals are set. That is all the state there is: a table
// cannot change without the instructions that meter refuses. It reports false when the instance has
// to be thrown away, as when its memory has grown, which cannot be undone.
func (in *instance) reset(t *template) bool {
	if uint64(in.mod.Memory().Size()) != t.image.size || !in.memory.restore() {
		return false
	}
	if stack := stackOf(in.call); stack == nil || len(*stack) > maxKept {
		in.call = in.mod.ExportedFunction("caponier_v1_call")
	}
	in.memory.refused = false // or a trap of the next call would be reported as this call's
	in.restore(t)
	return true
}

// hand readies an instance for a principal's call. Memory is mapped anew when the last call was
// another principal's: the module cannot read which pages that call wrote to, but it could time its
// own writes and learn 200 bits a call. It reports false when the instance has to be thrown away.
func (in *instance) hand(principal string) bool {
	if in.of != principal && !in.memory.remap() {
		return false
	}
	in.of = principal
	return true
}

func (in *instance) close() { in.mod.Close(context.Background()) }

// run calls an exported function and reports why it did not return.
func (in *instance) run(ctx context.Context, c *call, f api.Function) (code uint32, err error) {
	ctx = context.WithValue(ctx, callKey{}, c)
	c.stack = stackOf(f)
	var stack [1]uint64
	c.turn.scheduler = c.env.scheduler
	c.turn.begin(ctx)
	err = f.CallWithStack(ctx, stack[:])
	c.turn.end()
	c.notes.CPUTicks = (c.ticks+1)*meter.Quantum - int64(int32(in.ticks.Get()))
	switch {
	case c.killed != nil:
		return 0, c.killed
	case c.over:
		return 0, broken(codeProtocol, "the plugin wrote more than %d bytes of output", c.max)
	case c.exit != nil:
		return 0, broken(codeExit, "the plugin exited with code %d%s", *c.exit, c.firstLine())
	case err != nil && in.memory.quota.refused:
		return 0, broken(codeMemory, "the running calls of this principal have all the memory "+
			"that they may have together, %d MiB: call again when fewer run", 4*in.memory.max>>20)
	case err != nil && (in.memory.refused || bytes.Contains(c.stderr, []byte("out of memory"))):
		return 0, broken(codeMemory, "the plugin ran out of its %d MiB of memory "+
			"(sandbox.memory_max)", in.memory.max>>20)
	case err != nil:
		reason, trace, _ := strings.Cut(err.Error(), "\n")
		c.trace = trace
		return 0, broken(codeTrap, "%s%s", clean(reason, 200), c.firstLine())
	}
	return uint32(stack[0]), nil
}
