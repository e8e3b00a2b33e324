package sandbox

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

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

// spawn does something that Close and Remove wait for. The caller keeps both from beginning to.
func (p *plugin) spawn(do func()) {
	p.users.Add(1)
	p.s.work.Go(func() {
		defer p.users.Done()
		do()
	})
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
		p.log.write(slog.LevelWarn, "output of the plugin's start", nil, cleanLines(string(stderr)))
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
