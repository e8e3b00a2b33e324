// Package sandbox runs plugins: WebAssembly guests that start every call from the same bytes, are
// stopped in time and reach the host only through the gate.
package sandbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// Options of a Sandbox. Zero fields mean the defaults that are named.
type Options struct {
	// bytes of memory of one guest, rounded down to 64 KiB; 64 MiB
	MemoryMax int64 `koanf:"memory_max"`
	// compiled plugins, as native code: must belong to this user alone; empty keeps none
	CacheDir string `koanf:"cache_dir" path:"true"`
	// guests kept ready for each plugin; 2, negative for none
	Warm int `koanf:"-"`
	// calls that run at once, of one plugin half as many, of one principal half of either; others
	// wait; 32
	MaxInstances int           `koanf:"-"`
	MaxOutput    int           `koanf:"-"` // bytes that a guest may give; 16 MiB
	StartTimeout time.Duration `koanf:"-"` // for a plugin's own initialisation; 5s
	// broken calls in a row that take a plugin out of service; 10, negative for never
	BreakAfter int `koanf:"-"`
	// how long it stays out before one call may try again; 30s
	BreakFor time.Duration `koanf:"-"`
	Log      *slog.Logger  `koanf:"-"` // nil for none
}

const (
	maxMemory = 4<<30 - pageSize // one page more, and wazero would give its size as 0
	// percent of growth between two collections while a module is compiled, which makes some
	// hundred MiB of garbage
	compileGC = 50
)

// Validate says which option cannot be used.
func (o Options) Validate() error {
	switch {
	case o.MemoryMax != 0 && (o.MemoryMax < pageSize || o.MemoryMax > maxMemory):
		return fmt.Errorf(
			"sandbox.memory_max: %d bytes; give 65536 to %d",
			o.MemoryMax,
			int64(maxMemory),
		)
	case o.MaxInstances < 0, o.MaxOutput < 0, o.StartTimeout < 0, o.BreakFor < 0:
		return errors.New(
			"sandbox: max_instances, max_output, start_timeout and break_for must not be negative",
		)
	case o.Warm > 1000:
		return fmt.Errorf("sandbox.warm: %d guests for each plugin; give at most 1000", o.Warm)
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.MemoryMax = cmp.Or(o.MemoryMax, 64<<20) / pageSize * pageSize
	o.Warm, o.MaxInstances, o.MaxOutput = cmp.Or(
		o.Warm,
		2,
	), cmp.Or(
		o.MaxInstances,
		32,
	), cmp.Or(
		o.MaxOutput,
		16<<20,
	)
	o.StartTimeout, o.BreakAfter, o.BreakFor = cmp.Or(
		o.StartTimeout,
		5*time.Second,
	), cmp.Or(
		o.BreakAfter,
		10,
	), cmp.Or(
		o.BreakFor,
		30*time.Second,
	)
	o.Warm, o.Log = max(o.Warm, 0), cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}

// Sandbox runs the plugins that were added to it. It is safe for concurrent use.
type Sandbox struct {
	Options
	rt     wazero.Runtime
	cache  *cache // nil without CacheDir
	env    environment
	slots  chan struct{} // one for each call that runs
	halves *halves       // of slots, by principal
	work   sync.WaitGroup
	// ends with Close: the only use of a stored context is to stop what Add began
	ctx  context.Context
	stop context.CancelFunc

	cold sync.Mutex // held by the one that compiles

	mu        sync.Mutex // guards the following, and wanted and inLine of each plugin
	closed    bool
	plugins   map[string]*plugin // by digest
	preparing int                // how many plugins
	turn      *sync.Cond         // on mu: preparing or what is wanted has changed
}

var _ gate.Runner = (*Sandbox)(nil)

// features of the modules that are run; the parser refuses the rest by name before wazero sees it.
const features = api.CoreFeaturesV1 | api.CoreFeatureSignExtensionOps | api.CoreFeatureNonTrappingFloatToIntConversion | api.CoreFeatureBulkMemoryOperations

// New makes a sandbox without plugins.
func New(ctx context.Context, o Options) (*Sandbox, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Sandbox{
		Options: o.withDefaults(),
		plugins: map[string]*plugin{},
		env:     environment{newTurns(), time.Now, sleep, rand.Reader},
	}
	s.slots, s.halves, s.turn = make(
		chan struct{},
		s.MaxInstances,
	), newHalves(
		s.MaxInstances,
	), sync.NewCond(
		&s.mu,
	)
	config := wazero.NewRuntimeConfig().WithCoreFeatures(features).WithDebugInfoEnabled(false)
	if s.CacheDir != "" {
		var err error
		if s.cache, err = openCache(s.CacheDir, s.Log); err != nil {
			return nil, err
		}
		config = config.WithCompilationCache(s.cache.CompilationCache)
	}
	s.rt = wazero.NewRuntimeWithConfig(ctx, config)
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := register(ctx, s.rt, hostFuncs()); err != nil {
		return nil, errors.Join(
			fmt.Errorf("registering the imports of plugins: %w", err),
			s.Close(ctx),
		)
	}
	return s, nil
}

// Close waits for the calls that run, ends what is in the background and frees everything. Later
// calls are refused.
func (s *Sandbox) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.work.Wait()
	for _, p := range s.plugins {
		p.close()
	}
	err := s.rt.Close(ctx)
	if s.cache != nil {
		err = errors.Join(err, s.cache.Close(ctx))
	}
	return err
}

// Add checks a module and makes it ready, in the background; calls wait for that, and say what was
// wrong. imports are the operations that plugins.lock grants it. The module's digest must be the
// plugin's.
func (s *Sandbox) Add(p gate.Plugin, wasm []byte, imports []string) error {
	sum := sha256.Sum256(wasm)
	if digest := "sha256:" + hex.EncodeToString(sum[:]); digest != p.Digest {
		return fmt.Errorf(
			"plugin %s: the module is %s, and plugins.lock says %s",
			p.Name,
			digest,
			p.Digest,
		)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errors.New("the sandbox is closed")
	case s.plugins[p.Digest] != nil:
		return nil
	}
	share := half(s.MaxInstances)
	pl := &plugin{
		Plugin: p,
		s:      s,
		size:   len(wasm),
		ready:  make(chan struct{}),
		warm:   make(chan *instance, s.Warm),
		share:  make(chan struct{}, share),
		halves: newHalves(share),
	}
	s.plugins[p.Digest] = pl
	s.work.Go(func() { pl.prepare(wasm, imports) })
	return nil
}

func (s *Sandbox) plugin(digest string) *plugin {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	return s.plugins[digest]
}

// enter is plugin for a call, which Close then waits for until work.Done.
func (s *Sandbox) enter(digest string) *plugin {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.plugins[digest] == nil {
		return nil
	}
	s.work.Add(1)
	return s.plugins[digest]
}

// check parses a module and holds its imports against the granted operations.
func check(wasm []byte, imports []string) (*module, error) {
	granted := map[string]bool{}
	for _, i := range imports {
		granted[i] = true
	}
	m, err := parse(wasm)
	if err != nil {
		return nil, err
	}
	return m, m.checkImports(func(operation string) bool { return granted[operation] })
}

// load takes a module through everything that stands before the compiler.
func load(wasm []byte, imports []string, memoryMax int64) (*module, []byte, error) {
	m, err := check(wasm, imports)
	if err != nil {
		return nil, nil, err
	}
	rewritten, err := m.rewrite(uint32(memoryMax / pageSize))
	return m, rewritten, err
}

// compile compiles a rewritten module, or finds it in the cache.
func (s *Sandbox) compile(
	ctx context.Context,
	rewritten []byte,
) (compiled wazero.CompiledModule, err error) {
	f := func() (wazero.CompiledModule, error) {
		compiled, err := s.rt.CompileModule(experimental.WithCompilationWorkers(ctx, 2), rewritten)
		if err == nil {
			forget(compiled)
		}
		return compiled, err
	}
	key := ""
	if s.cache != nil {
		sum := sha256.Sum256(rewritten)
		key = hex.EncodeToString(sum[:])
		if compiled := s.cache.warm(key, f); compiled != nil {
			return compiled, nil
		}
	}
	s.cold.Lock()
	defer s.cold.Unlock()
	defer debug.SetGCPercent(debug.SetGCPercent(compileGC))
	if compiled, err = f(); err != nil {
		return nil, fmt.Errorf("compiling the module: %w", err)
	}
	if s.cache != nil {
		s.cache.store(key)
	}
	return compiled, nil
}

// Ready waits until the plugin of a tool is compiled and initialised, or cannot be.
func (s *Sandbox) Ready(ctx context.Context, t *gate.Tool) error {
	p := s.plugin(t.Plugin.Digest)
	if p == nil {
		return &gate.PluginError{
			Code:    "plugin_unavailable",
			Message: fmt.Sprintf("plugin %s is not loaded", t.Plugin.Name),
		}
	}
	return p.await(ctx)
}

// Run runs the plugin of an allowed call in a fresh guest. The error is a *gate.PluginError, the
// cause of ctx when that ended the call (a *gate.BudgetError when its time was up), or the host's
// own.
func (s *Sandbox) Run(ctx context.Context, r *gate.Running) (gate.Output, error) {
	tool := r.Call.Tool
	p := s.enter(tool.Plugin.Digest)
	if p == nil {
		return gate.Output{}, &gate.PluginError{
			Code:    "plugin_unavailable",
			Message: fmt.Sprintf("plugin %s is not loaded", tool.Plugin.Name),
		}
	}
	defer s.work.Done()
	input, err := callInput(ctx, r)
	if err != nil {
		return gate.Output{}, fmt.Errorf("input of %s: %w", tool.Name, err)
	}
	leave, err := s.queue(ctx, p, r.Call.Principal.ID)
	if err != nil {
		return gate.Output{}, err
	}
	in, err := p.take(ctx, r.Call.Principal.ID)
	if err != nil {
		leave()
		return gate.Output{}, err
	}
	well := false
	// giving back what a guest touched may take milliseconds, which are not the caller's; the slot
	// is taken until it is done
	defer func() {
		s.work.Go(func() { p.giveBack(in, well); leave() })
	}()
	c := &call{running: r, env: &s.env, input: input, max: s.MaxOutput}
	code, err := c.run(ctx, in, in.mod.ExportedFunction("caponier_v1_call"))
	output := c.output.bytes()
	if err == nil && (code > 2 || !json.Valid(output)) {
		err = &gate.PluginError{
			Code: "plugin_protocol",
			Message: fmt.Sprintf(
				"the plugin returned %d with %d bytes that should be JSON%s",
				int32(code),
				len(output),
				c.firstLine(),
			),
		}
	}
	p.record(err)
	if len(c.stderr) > 0 || err != nil {
		s.Log.Warn(
			"plugin",
			"plugin",
			tool.Plugin.Name,
			"tool",
			tool.Name,
			"call",
			r.Call.ID,
			"stderr",
			string(c.stderr),
			"error",
			err,
		)
	}
	if err != nil {
		return gate.Output{Notes: c.notes}, err
	}
	well = true
	return gate.Output{Code: int(code), JSON: output, Notes: c.notes}, nil
}

// callInput is what the guest reads. The arguments are the decided ones, byte for byte.
func callInput(ctx context.Context, r *gate.Running) ([]byte, error) {
	c := r.Call
	in := abi.Input{ABI: 1, Kind: cmp.Or(c.Tool.Kind, "tool"), Name: c.Tool.Name, Args: c.Args.JSON,
		URI: c.Tool.URI, Call: abi.CallInfo{ID: c.ID, Round: r.Round}, Nodes: []abi.Node{},
		Rendered: c.Rendered()}
	if c.Tool.Expand != nil {
		in.URI = c.Tool.Expand(c.Args.Value)
	}
	if due, ok := ctx.Deadline(); ok {
		in.Call.DeadlineMS = due.UnixMilli()
	}
	for _, n := range r.Nodes {
		in.Nodes = append(in.Nodes, abi.Node{Name: n.Name, Cluster: n.Cluster, Default: n.Default})
	}
	return json.Marshal(in)
}
