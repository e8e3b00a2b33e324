package sandbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/tetratelabs/wazero"
)

// plugin is a module in service: its template, guests that are ready, and how it fared.
type plugin struct {
	gate.Plugin
	s     *Sandbox
	size  int           // bytes of the module
	ready chan struct{} // closed when template or err is set
	tmpl  *template
	err   error
	warm  chan *instance
	// one for each call that has a guest, or waits for one with nothing before it but other plugins
	share  chan struct{}
	halves *halves // of share, by principal

	wanted, inLine bool // a call waits for it; it waits to be made ready: guarded by s.mu

	filling sync.Mutex // held by the one who makes guests ahead
	mu      sync.Mutex // guards the following
	broken  int        // calls in a row
	until   time.Time  // out of service
}

// await waits until the plugin is ready, and puts it before those that nobody waits for.
func (p *plugin) await(ctx context.Context) error {
	select {
	case <-p.ready:
		return nil
	default:
	}
	p.s.mu.Lock()
	p.wanted = true
	p.s.turn.Broadcast()
	p.s.mu.Unlock()
	select {
	case <-p.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// maxPreparing plugins are made ready at once, of which one is compiled, by all processors.
const maxPreparing = 2

// enter waits for the plugin's turn to be made ready.
func (p *plugin) enter() {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for p.inLine = true; s.preparing >= maxPreparing || s.before(p); {
		s.turn.Wait()
	}
	p.inLine = false
	s.preparing++
	s.turn.Broadcast() // the next may have a place too, and found only this one before it
}

// leave lets the next in. Compiling takes some hundred MiB, which would stay for minutes: the last
// one gives them back.
func (p *plugin) leave() {
	s := p.s
	s.mu.Lock()
	s.preparing--
	last := s.preparing == 0
	for _, other := range s.plugins {
		last = last && !other.inLine
	}
	s.turn.Broadcast()
	s.mu.Unlock()
	if last {
		debug.FreeOSMemory()
	}
}

// before reports whether another plugin in the line comes before this one: those that a call waits
// for, and then the larger, so that all are ready soonest.
func (s *Sandbox) before(p *plugin) bool {
	for _, other := range s.plugins {
		if other.inLine &&
			(other.wanted && !p.wanted || other.wanted == p.wanted && other.size > p.size) {
			return true
		}
	}
	return false
}

// prepare checks, rewrites, compiles and initialises the module, and then lets calls in.
func (p *plugin) prepare(wasm []byte, imports []string) {
	p.enter()
	defer p.leave()
	defer close(p.ready)
	began := time.Now()
	if p.err = p.s.ctx.Err(); p.err != nil {
		return
	}
	m, rewritten, err := load(wasm, imports, p.s.MemoryMax)
	var compiled wazero.CompiledModule
	if err == nil {
		compiled, err = p.s.compile(p.s.ctx, rewritten)
	}
	if err == nil {
		ctx, cancel := context.WithTimeoutCause(
			p.s.ctx,
			p.s.StartTimeout,
			fmt.Errorf("it took longer than %s (sandbox.start_timeout)", p.s.StartTimeout),
		)
		defer cancel()
		var stderr []byte
		if p.tmpl, stderr, err = newTemplate(ctx, p.s.rt, compiled, m, &p.s.env, uint64(p.s.MemoryMax)); len(
			stderr,
		) > 0 {
			p.s.Log.Warn("plugin start", "plugin", p.Name, "stderr", string(stderr))
		}
	}
	if p.err = err; err != nil {
		p.s.Log.Error("plugin cannot be used", "plugin", p.Name, "error", err)
		return
	}
	p.s.Log.Debug("plugin is ready", "plugin", p.Name, "after", time.Since(began))
	p.refill()
}

// take gives a principal's call a fresh guest, one that is ready if there is any.
func (p *plugin) take(ctx context.Context, principal string) (*instance, error) {
	if err := p.await(ctx); err != nil {
		return nil, err
	}
	if p.err != nil {
		return nil, &gate.PluginError{
			Code:    "plugin_unavailable",
			Message: fmt.Sprintf("plugin %s cannot be used: %s", p.Name, clean(p.err.Error(), 300)),
		}
	}
	if err := p.admit(); err != nil {
		return nil, err
	}
	select {
	case in := <-p.warm:
		if in.hand(principal) {
			return in, nil
		}
		in.close()
	default:
	}
	in, err := p.tmpl.instantiate(p.s.ctx)
	if err != nil {
		return nil, &gate.PluginError{Code: "plugin_unavailable", Message: clean(err.Error(), 300)}
	}
	in.of = principal
	return in, nil
}

// giveBack makes a guest whose call ended well as good as new, and keeps it if there is room. Every
// other guest is thrown away, and replaced.
func (p *plugin) giveBack(in *instance, well bool) {
	if well && len(p.warm) < cap(p.warm) && p.s.ctx.Err() == nil && in.reset(p.tmpl) {
		select {
		case p.warm <- in:
			return
		default:
		}
	}
	in.close()
	p.refill()
}

// refill makes guests until enough are ready.
func (p *plugin) refill() {
	if !p.filling.TryLock() {
		return
	}
	defer p.filling.Unlock()
	for len(p.warm) < cap(p.warm) && p.s.ctx.Err() == nil {
		in, err := p.tmpl.instantiate(p.s.ctx)
		if err != nil {
			p.s.Log.Error("making a guest ahead", "plugin", p.Name, "error", err)
			return
		}
		select {
		case p.warm <- in:
		default:
			in.close()
		}
	}
}

// admit refuses a plugin that broke too often, until its time out is over; then one call may try.
func (p *plugin) admit() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := time.Until(p.until)
	if p.s.BreakAfter < 0 || p.broken < p.s.BreakAfter || left <= 0 {
		if p.broken >= p.s.BreakAfter {
			p.until = time.Now().Add(p.s.BreakFor) // for the others, while one tries
		}
		return nil
	}
	return &gate.PluginError{Code: "plugin_unavailable",
		Message: fmt.Sprintf(
			"plugin %s broke %d times in a row and is out of service for another %s",
			p.Name,
			p.broken,
			left.Round(time.Second),
		)}
}

// record counts calls that broke. One that was stopped for its time, or cancelled, says nothing of
// the plugin's health either way.
func (p *plugin) record(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch broke := (*gate.PluginError)(nil); {
	case err == nil:
		p.broken = 0
		return
	case !errors.As(err, &broke):
		return
	}
	if p.broken++; p.broken == p.s.BreakAfter {
		p.s.Log.Error(
			"plugin is out of service",
			"plugin",
			p.Name,
			"broken",
			p.broken,
			"for",
			p.s.BreakFor,
		)
	}
	p.until = time.Now().Add(p.s.BreakFor)
}

func (p *plugin) close() {
	<-p.ready
	for {
		select {
		case in := <-p.warm:
			in.close()
			continue
		default:
		}
		break
	}
	if p.tmpl != nil {
		p.tmpl.image.Close()
	}
}
