package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

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

// record counts and logs how a call ended.
func (p *plugin) record(c *call, err error) {
	if p.breaker.record(c.of.Principal.ID, err) {
		p.log.log.Error("the plugin is out of service for a principal", "principal",
			c.of.Principal.ID, "broken_calls", p.breaker.after, "for", p.breaker.pause)
	}
	said, broke := string(c.stderr), (*terms.PluginError)(nil)
	if errors.As(err, &broke) {
		if strings.TrimSpace(said) == "" { // of a language that writes no trace of its own
			said = c.trace
		}
		p.log.write(slog.LevelError, "the plugin broke", c.of, p.shown(said), "error",
			p.shown(broke.Error()))
	} else if said != "" {
		p.log.write(slog.LevelInfo, "output of the plugin", c.of, p.shown(said))
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

func (p *plugin) shown(text string) string { return cleanLines(p.s.env.shown(p.s.ctx, text)) }
