// Package sandbox runs plugins: WebAssembly modules in instances that start every call from the
// same bytes, are stopped in time and reach the host only through the gate.
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
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/sandbox/meter"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// Options of a Sandbox. A zero field means its default.
type Options struct {
	// Bytes of memory of one instance, rounded down to 64 KiB; 64 MiB. The instances of one
	// principal together may grow by four times as much.
	MemoryMax int64 `koanf:"memory_max"`
	// Directory of compiled plugins, which is native code: it must belong to this user alone.
	// Empty keeps none.
	CacheDir string `koanf:"cache_dir" path:"true"`
	// Instances kept ready for each plugin; 2, negative for none.
	Warm int `koanf:"-"`
	// Calls that run at once, and half as many of one plugin. A principal may have half of either.
	// Others wait. 32
	MaxInstances int `koanf:"-"`

	MaxOutput    int           `koanf:"-"` // bytes of output of a call; 16 MiB
	StartTimeout time.Duration `koanf:"-"` // that a plugin's own start may compute or sleep; 5s
	RetryAfter   time.Duration `koanf:"-"` // to the next try of a failed start, then doubled; 1s
	BreakAfter   int           `koanf:"-"` // broken calls in a row; see breaker. 10
	BreakFor     time.Duration `koanf:"-"` // 30s
	Log          *slog.Logger  `koanf:"-"` // slog.Default()

	// Called before each compilation; the function that it returns is called after it. Compilations
	// do not overlap. Nil for none.
	Compiling func() (done func()) `koanf:"-"`
}

const maxMemory = 4<<30 - meter.PageSize // one page more, and wazero would give its size as 0

// Validate reports the first option that cannot be used.
func (o Options) Validate() error {
	switch {
	case o.MemoryMax != 0 && (o.MemoryMax < meter.PageSize || o.MemoryMax > maxMemory):
		return fmt.Errorf("sandbox.memory_max: %d bytes; set it to 65536 to %d",
			o.MemoryMax, int64(maxMemory))
	case o.MaxInstances < 0, o.MaxInstances > 10_000:
		return fmt.Errorf("sandbox.max_instances: %d; set it to 1 to 10000", o.MaxInstances)
	case o.Warm > 1000:
		return fmt.Errorf("sandbox.warm: %d instances of a plugin; set it to at most 1000", o.Warm)
	case o.MaxOutput < 0, o.StartTimeout < 0, o.RetryAfter < 0, o.BreakFor < 0:
		return errors.New("sandbox: sizes and durations must not be negative")
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.MemoryMax = cmp.Or(o.MemoryMax, 64<<20) / meter.PageSize * meter.PageSize
	o.Warm = max(cmp.Or(o.Warm, 2), 0)
	o.MaxInstances = cmp.Or(o.MaxInstances, 32)
	o.MaxOutput = cmp.Or(o.MaxOutput, 16<<20)
	o.StartTimeout = cmp.Or(o.StartTimeout, 5*time.Second)
	o.RetryAfter = cmp.Or(o.RetryAfter, time.Second)
	o.BreakAfter = cmp.Or(o.BreakAfter, 10)
	o.BreakFor = cmp.Or(o.BreakFor, 30*time.Second)
	o.Log = cmp.Or(o.Log, slog.Default())
	return o
}

// Sandbox runs the plugins that were added to it. It is safe for concurrent use.
type Sandbox struct {
	o      Options
	rt     wazero.Runtime
	cache  *cache // nil without CacheDir
	env    environment
	slots  *fair.Shares // one for each call that runs
	memory *fair.Shares // pages by which instances have grown
	work   sync.WaitGroup
	// ends with Close: the only use of a stored context is to stop what Add began
	ctx  context.Context
	stop context.CancelFunc

	compiling sync.Mutex // held by the one that compiles

	mu        sync.Mutex // guards the following, and wanted and queued of each plugin
	closed    bool
	plugins   map[string]*plugin // by digest
	preparing int                // how many plugins
	changed   *sync.Cond         // on mu: preparing or what is wanted has changed
}

var _ gate.Runner = (*Sandbox)(nil)

// features of the modules that are run. meter refuses the rest by name before wazero sees it.
const features = api.CoreFeaturesV1 | api.CoreFeatureSignExtensionOps |
	api.CoreFeatureNonTrappingFloatToIntConversion | api.CoreFeatureBulkMemoryOperations

// New returns a sandbox without plugins.
func New(ctx context.Context, o Options) (*Sandbox, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	pages := int(o.MemoryMax / meter.PageSize)
	s := &Sandbox{
		o:       o,
		plugins: map[string]*plugin{},
		env:     environment{newCPUScheduler(), time.Now, sleep, rand.Reader},
		slots:   fair.New(o.MaxInstances, fair.Half(o.MaxInstances)),
		memory:  fair.New(o.MaxInstances*pages, 4*pages),
	}
	s.changed = sync.NewCond(&s.mu)
	config := wazero.NewRuntimeConfig().WithCoreFeatures(features).WithDebugInfoEnabled(false)
	if o.CacheDir != "" {
		var err error
		if s.cache, err = openCache(o.CacheDir, o.Log); err != nil {
			return nil, err
		}
		config = config.WithCompilationCache(s.cache.CompilationCache)
	}
	s.rt = wazero.NewRuntimeWithConfig(ctx, config)
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := register(ctx, s.rt, hostFuncs()); err != nil {
		err = fmt.Errorf("registering the imports of plugins: %w", err)
		return nil, errors.Join(err, s.Close(ctx))
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

var errClosed = errors.New("the sandbox is closed")

// Add admits a module and prepares it in the background; calls wait for that, and report what was
// wrong. imports are the operations that plugins.lock grants. The module's digest must be p's.
func (s *Sandbox) Add(p gate.Plugin, wasm []byte, imports []string) error {
	if err := checkDigest(p, wasm); err != nil {
		return err
	}
	pl, err := s.add(p, func() ([]byte, error) { return wasm, nil }, imports)
	if err != nil || pl == nil {
		return err
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.size = len(wasm)
	return pl.begin()
}

// Later is Add for a module that is opened and prepared when its first call comes.
func (s *Sandbox) Later(p gate.Plugin, open func() ([]byte, error), imports []string) error {
	_, err := s.add(p, open, imports)
	return err
}

// add returns a plugin that was not begun, or nil for one that was added before.
func (s *Sandbox) add(
	p gate.Plugin, open func() ([]byte, error), imports []string,
) (*plugin, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errClosed
	case s.plugins[p.Digest] != nil:
		if !slices.Equal(s.plugins[p.Digest].imports, imports) {
			return nil, fmt.Errorf("plugin %s: its module is in service with other operations "+
				"than plugins.lock lists now; `caponier plugin lock` lists those it has", p.Name)
		}
		return nil, nil
	}
	share := fair.Half(s.o.MaxInstances)
	pl := &plugin{
		Plugin:  p,
		imports: imports,
		s:       s,
		log:     &moduleLog{log: s.o.Log.With("plugin", p.Name), now: time.Now},
		tried:   make(chan struct{}),
		warm:    make(chan *instance, s.o.Warm),
		share:   fair.New(share, fair.Half(share)),
		breaker: breaker{after: s.o.BreakAfter, pause: s.o.BreakFor},
	}
	pl.first = func() { pl.prepare(open, imports) }
	s.plugins[p.Digest] = pl
	return pl, nil
}

// Ready waits until the plugin of a tool is compiled and started. A start that has failed is tried
// again when its back-off is over. tell is told when there is something to wait for. The error is a
// *gate.PluginError or the cause of ctx.
func (s *Sandbox) Ready(ctx context.Context, t *gate.Tool, tell func(message string)) error {
	p, err := s.enter(t)
	if err != nil {
		return err
	}
	defer p.leaves()
	_, err = p.await(ctx, tell)
	return err
}

// Warm waits until every plugin is compiled, kept in the cache and started, or cannot be. It
// returns what went wrong, joined.
func (s *Sandbox) Warm(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed
	}
	s.work.Add(1)
	s.mu.Unlock()
	defer s.work.Done()
	var errs []error
	for _, p := range s.all() {
		if _, err := p.await(ctx, nil); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ErrPreparing is the state of a plugin that is being compiled or started.
var ErrPreparing = errors.New("the plugin is being compiled or started")

// Readiness returns the state of each plugin by digest: nil for ready and for one that no call
// needed yet, [ErrPreparing], or why its calls fail. It does not wait, and does not try a failed
// start again.
func (s *Sandbox) Readiness() map[string]error {
	states := map[string]error{}
	for _, p := range s.all() {
		p.mu.Lock()
		if states[p.Digest] = p.state(); p.first != nil {
			states[p.Digest] = nil
		}
		p.mu.Unlock()
	}
	return states
}

func (s *Sandbox) all() []*plugin {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.plugins))
}

// compile compiles a rewritten module, or finds it in the cache. announce is called before a
// compilation, which takes up to some seconds.
func (s *Sandbox) compile(
	ctx context.Context, rewritten []byte, announce func(),
) (wazero.CompiledModule, error) {
	f := func() (wazero.CompiledModule, error) {
		return s.rt.CompileModule(experimental.WithCompilationWorkers(ctx, 2), rewritten)
	}
	key := ""
	if s.cache != nil {
		sum := sha256.Sum256(rewritten)
		key = hex.EncodeToString(sum[:])
		if compiled := s.cache.load(key, f); compiled != nil {
			return compiled, nil
		}
	}
	s.compiling.Lock()
	defer s.compiling.Unlock()
	announce()
	if s.o.Compiling != nil {
		defer s.o.Compiling()()
	}
	compiled, err := f()
	if err != nil {
		return nil, fmt.Errorf("compiling the module: %w", err)
	}
	if s.cache != nil {
		s.cache.store(key)
	}
	return compiled, nil
}

// Run runs the plugin of an allowed call in a fresh instance. The error is a *gate.PluginError, the
// cause of ctx when that ended the call (a *gate.BudgetError when its time was up), or the host's
// own.
func (s *Sandbox) Run(ctx context.Context, r *gate.Running) (gate.Output, error) {
	p, err := s.enter(r.Call.Tool)
	if err != nil {
		return gate.Output{}, err
	}
	defer p.leaves()
	input, err := callInput(ctx, r)
	if err != nil {
		return gate.Output{}, fmt.Errorf("input of %s: %w", r.Call.Tool.Name, err)
	}
	principal := r.Call.Principal.ID
	leave, err := s.queue(ctx, p, principal)
	if err != nil {
		return gate.Output{}, err
	}
	in, err := p.take(ctx, principal)
	if err != nil {
		leave()
		return gate.Output{}, err
	}
	well := false
	// restoring what the call wrote to may take milliseconds, which are not the caller's; the slot
	// is taken until it is done
	defer func() {
		p.spawn(func() { p.giveBack(in, well); leave() })
	}()
	c := &call{door: r, of: r.Call, log: p.log, env: &s.env, input: input, max: s.o.MaxOutput}
	code, err := c.run(ctx, in, in.mod.ExportedFunction("caponier_v1_call"))
	output := c.output.bytes()
	if err == nil && (code > 2 || !json.Valid(output)) {
		err = broken(codeProtocol, "the plugin returned %d with %d bytes that should be JSON%s",
			int32(code), len(output), c.firstLine())
	}
	p.record(c, err)
	if err != nil {
		return gate.Output{Notes: c.notes}, err
	}
	well = true
	return gate.Output{Code: int(code), JSON: output, Notes: c.notes}, nil
}

// queue waits until the call may have an instance: first for one of its plugin's slots, then for
// one of all. A plugin has half of all slots, so that one whose calls hang leaves room for others;
// a principal may have half of a plugin's, and half of all.
func (s *Sandbox) queue(ctx context.Context, p *plugin, principal string) (func(), error) {
	if err := p.share.Acquire(ctx, principal); err != nil {
		return nil, err
	}
	if err := s.slots.Acquire(ctx, principal); err != nil {
		p.share.Release(principal)
		return nil, err
	}
	return func() { s.slots.Release(principal); p.share.Release(principal) }, nil
}

// callInput returns what the module reads. The arguments are the decided ones, byte for byte.
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
