// Package sandbox runs plugins: WebAssembly modules in instances that start every call from the
// same bytes, are stopped in time and reach the host only through the gate.
package sandbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/sandbox/meter"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

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
		env:     environment{newCPUScheduler(), time.Now, sleep, rand.Reader, o.Said},
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

// Add admits a module and prepares it in the background; calls wait for that, and report what was
// wrong. imports are the operations that plugins.lock grants. The module's digest must be p's.
func (s *Sandbox) Add(p terms.Plugin, wasm []byte, imports []string) error {
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
func (s *Sandbox) Later(p terms.Plugin, open func() ([]byte, error), imports []string) error {
	_, err := s.add(p, open, imports)
	return err
}

// add returns a plugin that was not begun, or nil for one that was added before.
func (s *Sandbox) add(
	p terms.Plugin, open func() ([]byte, error), imports []string,
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

// Ready waits until the plugin of a call's tool is compiled and started. A start that has failed is
// tried again when its back-off is over. tell is told when there is something to wait for. The
// error is a *terms.PluginError or the cause of ctx.
func (s *Sandbox) Ready(ctx context.Context, c *terms.Call, tell func(message string)) error {
	p, err := s.enter(c.Tool)
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

// Run runs the plugin of an allowed call in a fresh instance. The error is a *terms.PluginError, or
// the cause of ctx when that ended the call (a *terms.BudgetError when its time was up), or the
// host's own.
func (s *Sandbox) Run(ctx context.Context, r *gate.Running) (terms.Output, error) {
	p, err := s.enter(r.Call.Tool)
	if err != nil {
		return terms.Output{}, err
	}
	defer p.leaves()
	input, err := callInput(ctx, r)
	if err != nil {
		return terms.Output{}, fmt.Errorf("input of %s: %w", r.Call.Tool.Name, err)
	}
	principal := r.Call.Principal.ID
	leave, err := s.queue(ctx, p, principal)
	if err != nil {
		return terms.Output{}, err
	}
	in, err := p.take(ctx, principal)
	if err != nil {
		leave()
		return terms.Output{}, err
	}
	well := false
	// restoring what the call wrote to may take milliseconds, which are not the caller's; the slot
	// is taken until it is done
	defer func() {
		p.spawn(func() { p.giveBack(in, well); leave() })
	}()
	c := &call{door: r, of: r.Call, log: p.log, env: &s.env, input: input, max: s.o.MaxOutput}
	code, err := in.run(ctx, c, in.call)
	output := c.output.bytes()
	if err == nil && (code > 2 || !json.Valid(output)) {
		err = broken(codeProtocol, "the plugin returned %d with %d bytes that should be JSON%s",
			int32(code), len(output), c.firstLine())
	}
	p.record(c, err)
	if err != nil {
		return terms.Output{Notes: c.notes}, err
	}
	well = true
	return terms.Output{Code: int(code), JSON: output, Notes: c.notes}, nil
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
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		if !slices.Contains(c.Targets.LocalPaths, name) { // below one of them
			f := abi.LocalFile{Path: name}
			if sum, is := strings.CutPrefix(c.Files[name], "sha256:"); is {
				f.SHA256 = sum
			}
			in.LocalFiles = append(in.LocalFiles, f)
		}
	}
	return json.Marshal(in)
}

// enter returns the plugin of a tool, and has Close and Remove wait until its leave is called.
func (s *Sandbox) enter(t *terms.Tool) (*plugin, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plugins[t.Plugin.Digest]
	if s.closed || p == nil {
		return nil, broken(codeUnavailable, "plugin %s is not loaded", t.Plugin.Name)
	}
	s.work.Add(1)
	p.users.Add(1)
	return p, nil
}

// leaves ends what Sandbox.enter began.
func (p *plugin) leaves() {
	p.users.Done()
	p.s.work.Done()
}

// Remove takes the module with this digest out of service. Calls that run go on; it is freed when
// the last of them has ended.
func (s *Sandbox) Remove(digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plugins[digest]
	if s.closed || p == nil {
		return
	}
	delete(s.plugins, digest)
	s.work.Go(func() { p.users.Wait(); p.close() })
}
