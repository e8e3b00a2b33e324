package sandbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

// plugin is a module in service: its template, guests that are ready, and how it fared.
type plugin struct {
	gate.Plugin
	s     *Sandbox
	ready chan struct{} // closed when template or err is set
	tmpl  *template
	err   error
	warm  chan *instance
	share chan struct{} // one for each call that has a guest, or waits for one with nothing before it but other plugins

	filling sync.Mutex // held by the one who makes guests ahead
	mu      sync.Mutex // guards the following
	broken  int        // calls in a row
	until   time.Time  // out of service
}

// prepare rewrites, compiles and initialises the module, and then lets calls in.
func (p *plugin) prepare(m *module) {
	defer debug.FreeOSMemory() // compiling takes some hundred MiB, which would stay for minutes
	defer close(p.ready)
	began := time.Now()
	if p.err = p.s.ctx.Err(); p.err != nil {
		return
	}
	compiled, err := p.s.make(p.s.ctx, m)
	if err == nil {
		ctx, cancel := context.WithTimeoutCause(p.s.ctx, p.s.StartTimeout, fmt.Errorf("it took longer than %s (sandbox.start_timeout)", p.s.StartTimeout))
		defer cancel()
		var stderr []byte
		if p.tmpl, stderr, err = newTemplate(ctx, p.s.rt, compiled, m, &p.s.env, uint64(p.s.MemoryMax)); len(stderr) > 0 {
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

// take gives a fresh guest, one that is ready if there is any.
func (p *plugin) take(ctx context.Context) (*instance, error) {
	select {
	case <-p.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if p.err != nil {
		return nil, &gate.PluginError{Code: "plugin_unavailable", Message: fmt.Sprintf("plugin %s cannot be used: %s", p.Name, clean(p.err.Error(), 300))}
	}
	if err := p.admit(); err != nil {
		return nil, err
	}
	select {
	case in := <-p.warm:
		return in, nil
	default:
	}
	in, err := p.tmpl.instantiate(p.s.ctx)
	if err != nil {
		return nil, &gate.PluginError{Code: "plugin_unavailable", Message: clean(err.Error(), 300)}
	}
	return in, nil
}

// giveBack makes a guest whose call ended well as good as new, and keeps it if there is room. Every other guest is thrown away, and replaced.
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
		Message: fmt.Sprintf("plugin %s broke %d times in a row and is out of service for another %s", p.Name, p.broken, left.Round(time.Second))}
}

// record counts calls that broke. One that was stopped for its time, or cancelled, says nothing of the plugin's health either way.
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
		p.s.Log.Error("plugin is out of service", "plugin", p.Name, "broken", p.broken, "for", p.s.BreakFor)
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
