package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/sandbox/meter"
	"github.com/tetratelabs/wazero"
)

// plugin is a module in service: its template, the instances that are ready, and how it fared.
type plugin struct {
	gate.Plugin
	imports []string // operations that are granted
	s       *Sandbox
	size    int // bytes of the module, or 0 before it was opened
	log     *moduleLog
	warm    chan *instance
	share   *fair.Shares // one slot for each call that has an instance, or waits for one of all
	breaker breaker
	filling sync.Mutex     // held by the one that makes instances ahead
	users   sync.WaitGroup // calls, and what they and Add began

	wanted, queued bool // a call waits for it; it waits to be prepared: guarded by s.mu

	mu    sync.Mutex    // guards the following
	first func()        // prepares it; nil when that has begun
	tried chan struct{} // closed when the attempt to prepare or start it has ended
	tmpl  *template     // nil until a start succeeded
	err   error         // of the last attempt
	// what a failed start is tried again with; nil when that is no use, or not needed
	source *source
	fails  int
	again  time.Time // no earlier
}

// source is an admitted and compiled module.
type source struct {
	module   *meter.Module
	compiled wazero.CompiledModule
}

// maxRetryAfter bounds the back-off of a start that fails again and again.
const maxRetryAfter = time.Minute

// await waits until the plugin is ready and returns its template, or reports why it is not. It
// begins another start when one failed and its back-off is over. tell may be nil.
func (p *plugin) await(ctx context.Context, tell func(message string)) (*template, error) {
	p.mu.Lock()
	if p.first != nil {
		if err := p.begin(); err != nil {
			p.mu.Unlock()
			return nil, broken(codeUnavailable, "%s", err)
		}
	}
	if p.tmpl == nil && p.source != nil && p.ended() && !time.Now().Before(p.again) {
		src := p.source
		p.tried = make(chan struct{})
		p.spawn(func() { _ = p.tryStart(src) })
	}
	tried := p.tried
	p.mu.Unlock()
	select {
	case <-tried:
	default:
		p.s.mu.Lock()
		p.wanted = true
		p.s.changed.Broadcast()
		p.s.mu.Unlock()
		if tell != nil {
			tell(fmt.Sprintf("Starting plugin %s; it is compiled once, which can take a minute",
				p.Name))
		}
		select {
		case <-tried:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tmpl, p.state()
}

// begin begins to prepare the plugin. It is called once, with mu held.
func (p *plugin) begin() error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.s.closed {
		return errClosed
	}
	p.spawn(p.first)
	p.first = nil
	return nil
}

// enter returns the plugin of a tool, and has Close and Remove wait until its leave is called.
func (s *Sandbox) enter(t *gate.Tool) (*plugin, error) {
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

// spawn does something that Close and Remove wait for. The caller keeps both from beginning to.
func (p *plugin) spawn(do func()) {
	p.users.Add(1)
	p.s.work.Go(func() {
		defer p.users.Done()
		do()
	})
}

// leaves ends what Sandbox.enter began.
func (p *plugin) leaves() {
	p.users.Done()
	p.s.work.Done()
}

// ended reports whether no attempt is under way. It is called with mu held.
func (p *plugin) ended() bool {
	select {
	case <-p.tried:
		return true
	default:
		return false
	}
}

// state returns nil for ready, ErrPreparing, or why calls fail. It is called with mu held.
func (p *plugin) state() error {
	switch {
	case p.tmpl != nil:
		return nil
	case !p.ended():
		return ErrPreparing
	}
	again := ""
	if p.source != nil {
		again = fmt.Sprintf("; failed starts: %d; a call after %s tries again",
			p.fails, max(time.Until(p.again), 0).Round(time.Second))
	}
	return broken(codeUnavailable, "plugin %s cannot be used: %s%s",
		p.Name, clean(p.err.Error(), 300), again)
}

// maxPreparing plugins are prepared at once, of which one is compiled, by all processors.
const maxPreparing = 2

// enter waits for the plugin's turn to be prepared.
func (p *plugin) enter() {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for p.queued = true; s.preparing >= maxPreparing || s.before(p); {
		s.changed.Wait()
	}
	p.queued = false
	s.preparing++
	s.changed.Broadcast() // the next may have a place too, and found only this one before it
}

// leave lets the next one in. Compiling takes some hundred MiB, which would stay for minutes: the
// last one returns them to the system.
func (p *plugin) leave() {
	s := p.s
	s.mu.Lock()
	s.preparing--
	last := s.preparing == 0
	for _, other := range s.plugins {
		last = last && !other.queued
	}
	s.changed.Broadcast()
	s.mu.Unlock()
	if last {
		debug.FreeOSMemory()
	}
}

// before reports whether another plugin in the queue comes before this one: those that a call waits
// for come first, and then the larger ones, so that all are ready soonest.
func (s *Sandbox) before(p *plugin) bool {
	for _, other := range s.plugins {
		if other.queued &&
			(other.wanted && !p.wanted || other.wanted == p.wanted && other.size > p.size) {
			return true
		}
	}
	return false
}

// prepare opens, admits, rewrites, compiles and starts the module, and then lets calls in. A module
// that cannot be opened or compiled is not tried again: the same bytes would fail in the same way.
func (p *plugin) prepare(open func() ([]byte, error), imports []string) {
	p.enter()
	defer p.leave()
	wasm, err := open()
	if err == nil {
		err = checkDigest(p.Plugin, wasm)
	}
	if err != nil {
		p.settle(nil, err)
		return
	}
	began, cold := time.Now(), false
	src, err := p.compile(wasm, imports, func() {
		cold = true
		p.log.log.Info("compiling the plugin", "bytes", len(wasm))
	})
	if err != nil {
		p.settle(nil, err)
		return
	}
	p.mu.Lock()
	p.source = src
	p.mu.Unlock()
	if p.tryStart(src) == nil {
		level := slog.LevelDebug
		if cold { // as its compilation was announced
			level = slog.LevelInfo
		}
		p.log.log.Log(p.s.ctx, level, "the plugin is ready",
			"after", time.Since(began).Round(time.Millisecond))
	}
}

func (p *plugin) compile(wasm []byte, imports []string, announce func()) (*source, error) {
	if err := p.s.ctx.Err(); err != nil {
		return nil, err
	}
	m, rewritten, err := load(wasm, imports, p.s.o.MemoryMax)
	if err != nil {
		return nil, err
	}
	compiled, err := p.s.compile(p.s.ctx, rewritten, announce)
	return &source{m, compiled}, err
}

// tryStart runs the module's own initialisation and settles the attempt.
func (p *plugin) tryStart(src *source) error {
	limit := p.s.o.StartTimeout
	tmpl, stderr, err := newTemplate(p.s.ctx, p.s.rt, src, &p.s.env, p.s.o.MemoryMax, limit)
	if len(stderr) > 0 {
		p.log.write(slog.LevelWarn, "output of the plugin's start", nil, cleanLines(stderr))
	}
	if p.settle(tmpl, err); err == nil {
		p.refill(tmpl)
	}
	return err
}

// settle ends an attempt.
func (p *plugin) settle(tmpl *template, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tmpl, p.err = tmpl, err; err == nil {
		p.source, p.fails = nil, 0
	} else if p.s.ctx.Err() == nil {
		attrs := []any{"error", err}
		if p.source != nil {
			p.fails++
			wait := min(p.s.o.RetryAfter<<min(p.fails-1, 10), max(maxRetryAfter, p.s.o.RetryAfter))
			p.again = time.Now().Add(wait)
			attrs = append(attrs, "failed_starts", p.fails, "retry_after", wait)
		}
		p.log.log.Error("the plugin cannot be used", attrs...)
	}
	close(p.tried)
}

// take returns a fresh instance for a principal's call, one that is ready if there is any.
func (p *plugin) take(ctx context.Context, principal string) (*instance, error) {
	tmpl, err := p.await(ctx, nil)
	if err != nil {
		return nil, err
	}
	if left, n := p.breaker.admit(principal); n > 0 {
		return nil, broken(codeUnavailable, "the last %d calls of this principal broke plugin %s, "+
			"which is out of service for it for another %s", n, p.Name, left.Round(time.Second))
	}
	var in *instance
	select {
	case in = <-p.warm:
		if !in.hand(principal) {
			in.close()
			in = nil
		}
	default:
	}
	if in == nil {
		if in, err = tmpl.instantiate(p.s.ctx); err != nil {
			return nil, broken(codeUnavailable, "%s", clean(err.Error(), 300))
		}
		in.of = principal
	}
	in.memory.quota = quota{shares: p.s.memory, principal: principal}
	return in, nil
}

// giveBack restores an instance whose call ended well, and keeps it if there is room. Every other
// instance is thrown away, and replaced.
func (p *plugin) giveBack(in *instance, well bool) {
	used := in.memory.quota
	defer used.release()
	in.memory.quota = quota{}
	if well && len(p.warm) < cap(p.warm) && p.s.ctx.Err() == nil && in.reset(p.tmpl) {
		select {
		case p.warm <- in:
			return
		default:
		}
	}
	in.close()
	p.refill(p.tmpl)
}

// refill makes instances until enough are ready.
func (p *plugin) refill(tmpl *template) {
	if !p.filling.TryLock() {
		return
	}
	defer p.filling.Unlock()
	for len(p.warm) < cap(p.warm) && p.s.ctx.Err() == nil {
		in, err := tmpl.instantiate(p.s.ctx)
		if err != nil {
			p.log.log.Error("making an instance ahead of a call", "error", err)
			return
		}
		select {
		case p.warm <- in:
		default:
			in.close()
		}
	}
}

// record counts and logs how a call ended.
func (p *plugin) record(c *call, err error) {
	if p.breaker.record(c.of.Principal.ID, err) {
		p.log.log.Error("the plugin is out of service for a principal", "principal",
			c.of.Principal.ID, "broken_calls", p.breaker.after, "for", p.breaker.pause)
	}
	text, broke := cleanLines(c.stderr), (*gate.PluginError)(nil)
	switch {
	case errors.As(err, &broke):
		if text == "" { // of a language that writes no trace of its own
			text = cleanLines([]byte(c.trace))
		}
		p.log.write(slog.LevelError, "the plugin broke", c.of, text, "error", broke)
	case len(text) > 0:
		p.log.write(slog.LevelInfo, "output of the plugin", c.of, text)
	}
}

// close frees what is kept. Nothing else may use the plugin any more.
func (p *plugin) close() {
	if p.first != nil {
		return
	}
	<-p.tried
	for range len(p.warm) {
		(<-p.warm).close()
	}
	if p.tmpl != nil {
		p.tmpl.image.Close()
		_ = p.tmpl.compiled.Close(context.Background())
	} else if p.source != nil {
		_ = p.source.compiled.Close(context.Background())
	}
}
