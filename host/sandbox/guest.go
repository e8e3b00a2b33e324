package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

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

// instance is one guest in the template's state, for one call.
type instance struct {
	mod     api.Module
	memory  *memory
	ticks   api.MutableGlobal
	globals []api.MutableGlobal // in the template's order
	of      string              // the principal of its last call; empty before the first
}

// newTemplate initialises a compiled module under ctx, whose deadline stops it, and keeps what it
// then is.
func newTemplate(
	ctx context.Context,
	rt wazero.Runtime,
	compiled wazero.CompiledModule,
	m *module,
	env *environment,
	limit uint64,
) (t *template, stderr []byte, err error) {
	data := make([]byte, uint64(m.memMin)*pageSize)
	for _, s := range m.data {
		copy(data[s.offset:], s.data)
	}
	first, err := newImage(data, uint64(len(data)))
	if err != nil {
		return nil, nil, err
	}
	defer first.Close()
	raw := &template{rt: rt, compiled: compiled, image: first, limit: limit}
	in, err := raw.instantiate(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer in.close()
	c := &call{env: env}
	for _, name := range []string{exportStart, "_initialize"} {
		if f := in.mod.ExportedFunction(name); f != nil {
			if _, err := c.run(ctx, in, f); err != nil {
				return nil, c.stderr, fmt.Errorf("starting the plugin (%s): %w", name, err)
			}
		}
	}
	view, _ := in.mod.Memory().Read(0, in.mod.Memory().Size())
	kept, err := newImage(view, uint64(len(view)))
	if err != nil {
		return nil, c.stderr, err
	}
	t = &template{rt: rt, compiled: compiled, image: kept, limit: limit}
	for i, g := range m.globals {
		if g.mutable {
			t.globals = append(
				t.globals,
				savedGlobal{exportGlobal(i), in.mod.ExportedGlobal(exportGlobal(i)).Get()},
			)
		}
	}
	return t, c.stderr, nil
}

// instantiate makes a guest in the template's state.
func (t *template) instantiate(ctx context.Context) (in *instance, err error) {
	in = &instance{memory: &memory{image: t.image, max: t.limit}}
	defer func() {
		if p := recover(); p != nil { // wazero panics when its allocator has no memory to give
			in.memory.Free()
			in, err = nil, fmt.Errorf("making a guest: %v", p)
		}
	}()
	in.mod, err = t.rt.InstantiateModule(
		experimental.WithMemoryAllocator(ctx, in.memory),
		t.compiled,
		wazero.NewModuleConfig().WithName("").WithStartFunctions(),
	)
	if err != nil {
		in.memory.Free()
		return nil, fmt.Errorf("making a guest: %w", err)
	}
	mem := in.mod.Memory()
	if more := uint32(t.image.size/pageSize) - mem.Size()/pageSize; more > 0 {
		if _, ok := mem.Grow(more); !ok {
			in.close()
			return nil, errors.New("making a guest: its memory could not be restored")
		}
	}
	in.ticks = in.mod.ExportedGlobal(exportTicks).(api.MutableGlobal)
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
	in.ticks.Set(quantum)
}

// reset brings a guest that has returned from its call back to the template's state: its memory is
// mapped anew from the image, and all mutable globals are set. That is all the state there is: a
// table cannot change without the instructions that the parser refuses. It reports false when the
// guest has to be thrown away, as when its memory has grown, which cannot be undone.
func (in *instance) reset(t *template) bool {
	if uint64(in.mod.Memory().Size()) != t.image.size || !in.memory.restore() {
		return false
	}
	in.memory.refused = false // or the next call's trap would be told as this call's
	in.restore(t)
	return true
}

// hand readies a guest for a principal's call. Memory is mapped anew when the last one was
// another's: which pages that call wrote to cannot be read, but a guest that takes the time of its
// own writes would tell, 200 bits a call. It reports false when the guest has to be thrown away.
func (in *instance) hand(principal string) bool {
	if in.of != principal && !in.memory.remap() {
		return false
	}
	in.of = principal
	return true
}

func (in *instance) close() { in.mod.Close(context.Background()) }
