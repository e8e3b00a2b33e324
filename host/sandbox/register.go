package sandbox

import (
	"context"

	"github.com/caponier-mcp/caponier/host/sandbox/meter"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// hostFuncs returns all the imports that exist, by module and name. Others cannot be linked.
func hostFuncs() map[string]map[string]hostFunc {
	v1 := map[string]hostFunc{
		"input_len":    {noArgs, i, (*call).inputLen},
		"resp_len":     {noArgs, i, (*call).respLen},
		"input_read":   {ii, i, (*call).inputRead},
		"resp_read":    {ii, i, (*call).respRead},
		"output_write": {ii, i, (*call).outputWrite},
		"log":          {iii, noArgs, (*call).writeLog},
		"progress":     {ii, noArgs, (*call).progress},
	}
	for _, name := range abi.Operations() {
		v1[name] = hostFunc{ii, i,
			func(c *call, ctx context.Context, mem api.Memory, a arguments) uint32 {
				request, ok := c.take(mem, a.i32(0), min(a.i32(1), abi.MaxRequest+1))
				return c.operate(ctx, name, request, ok)
			}}
	}
	tick := func(c *call, ctx context.Context, _ api.Memory, _ arguments) uint32 {
		c.tick(ctx)
		return meter.Quantum
	}
	return map[string]map[string]hostFunc{
		abiModule:        v1,
		wasiModule:       wasiFuncs(),
		meter.TickModule: {meter.TickName: {noArgs, i, tick}},
	}
}

// register makes the host modules of a runtime. Every import ends an instance whose time is up,
// before and after its work.
func register(ctx context.Context, rt wazero.Runtime, all map[string]map[string]hostFunc) error {
	for module, funcs := range all {
		b := rt.NewHostModuleBuilder(module)
		for name, f := range funcs {
			fn := func(ctx context.Context, mod api.Module, stack []uint64) {
				c := ctx.Value(callKey{}).(*call)
				c.check(ctx)
				r := f.do(c, ctx, mod.Memory(), stack)
				c.settle(ctx)
				if f.results != "" {
					stack[0] = uint64(r)
				}
				c.check(ctx)
			}
			b.NewFunctionBuilder().
				WithGoModuleFunction(api.GoModuleFunc(fn), []byte(f.params), []byte(f.results)).
				Export(name)
		}
		if _, err := b.Instantiate(ctx); err != nil {
			return err
		}
	}
	return nil
}
