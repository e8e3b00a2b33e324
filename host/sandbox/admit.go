package sandbox

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/caponier-mcp/caponier/host/sandbox/meter"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// admit parses a module and refuses it, by name, when it is not a plugin or imports what does not
// exist or is not among the granted operations.
func admit(wasm []byte, granted []string) (*meter.Module, error) {
	m, err := meter.Parse(wasm)
	switch {
	case err != nil:
		return nil, err
	case !m.HasMemory():
		return nil, meter.ErrNoMemory
	}
	if err := checkExports(m); err != nil {
		return nil, err
	}
	return m, checkImports(m, granted)
}

// load admits a module and rewrites it: everything that comes before the compiler.
func load(wasm []byte, granted []string, memoryMax int64) (*meter.Module, []byte, error) {
	m, err := admit(wasm, granted)
	if err != nil {
		return nil, nil, err
	}
	if needs := int64(m.Pages()) * meter.PageSize; needs > memoryMax {
		return nil, nil, fmt.Errorf("the module needs %d KiB of memory at once; its limit is %d "+
			"KiB (sandbox.memory_max)", needs>>10, memoryMax>>10)
	}
	rewritten, err := m.Rewrite()
	return m, rewritten, err
}

// checkExports holds a module against what a plugin exports.
func checkExports(m *meter.Module) error {
	returnsI32 := meter.Func{Results: i}
	want := map[string]string{
		"memory":               "a memory",
		"caponier_v1_call":     "a function () -> i32",
		"caponier_v1_describe": "a function () -> i32",
	}
	for _, e := range m.Exports() {
		ok := true
		switch e.Name {
		case "memory":
			ok = e.Kind == meter.Memory
		case "caponier_v1_call", "caponier_v1_describe":
			ok = e.Kind == meter.Function && e.Type == returnsI32
		case "_initialize":
			ok = e.Kind == meter.Function && e.Type == meter.Func{}
		case "_start":
			return errors.New("the module is a command with _start; build a reactor " +
				"(-buildmode=c-shared, -mexec-model=reactor)")
		}
		if !ok {
			return fmt.Errorf("export %q has the wrong kind or type", e.Name)
		}
		delete(want, e.Name)
	}
	for name, what := range want {
		return fmt.Errorf("export %q is missing: a plugin exports %s under that name", name, what)
	}
	return nil
}

// checkImports refuses a module that imports what does not exist, or an operation that is not
// granted.
func checkImports(m *meter.Module, granted []string) error {
	known := hostFuncs()
	delete(known, meter.TickModule)
	for _, i := range m.Imports() {
		f, ok := known[i.Module][i.Name]
		switch {
		case !ok:
			return fmt.Errorf("import %s.%s does not exist here", i.Module, i.Name)
		case i.Type != meter.Func{Params: f.params, Results: f.results}:
			return fmt.Errorf("import %s.%s has the wrong type", i.Module, i.Name)
		case isOperation(i) && !slices.Contains(granted, i.Name):
			return fmt.Errorf("import %s.%s is an operation that plugins.lock does not list for "+
				"this plugin", i.Module, i.Name)
		}
	}
	return nil
}

func isOperation(i meter.Import) bool {
	return i.Module == abiModule && slices.Contains(abi.Operations(), i.Name)
}

// operations lists the operations that a module imports: all that it can ever ask for.
func operations(m *meter.Module) []string {
	names := []string{}
	for _, i := range m.Imports() {
		if isOperation(i) {
			names = append(names, i.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func checkDigest(p terms.Plugin, wasm []byte) error {
	if digest := fmt.Sprintf("sha256:%x", sha256.Sum256(wasm)); digest != p.Digest {
		return fmt.Errorf("plugin %s: the module is %s, and plugins.lock says %s",
			p.Name, digest, p.Digest)
	}
	return nil
}
