package sandbox

import (
	"context"
	"sync"
)

// queue waits until the call may have a guest. No plugin gets more than half of them, so that one
// whose calls hang leaves room for the others; and no principal more than half of those of a
// plugin, or of all. Calls over their principal's half wait before the line of all principals, not
// in it.
func (s *Sandbox) queue(
	ctx context.Context,
	p *plugin,
	principal string,
) (leave func(), err error) {
	ofPlugin, forget := p.halves.of(principal)
	ofAll, forgetAll := s.halves.of(principal)
	var held []chan struct{}
	leave = func() {
		for _, slots := range held {
			<-slots
		}
		forget()
		forgetAll()
	}
	// always in this order: nobody waits for one who waits for him
	for _, slots := range []chan struct{}{ofPlugin, ofAll, p.share, s.slots} {
		select {
		case slots <- struct{}{}:
			held = append(held, slots)
		case <-ctx.Done():
			leave()
			return nil, context.Cause(ctx)
		}
	}
	return leave, nil
}

// half of n leaves as many to the others, or one less.
func half(n int) int { return (n + 1) / 2 }

// halves are the slots that each principal may take of some that all share.
type halves struct {
	each int

	mu sync.Mutex // guards the following
	by map[string]*own
}

type own struct {
	slots chan struct{}
	calls int // that have a slot or wait for one
}

func newHalves(n int) *halves { return &halves{each: half(n), by: map[string]*own{}} }

// of gives the slots of a principal, which are kept until each of its calls was forgotten.
func (h *halves) of(principal string) (slots chan struct{}, forget func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.by[principal]
	if o == nil {
		o = &own{slots: make(chan struct{}, h.each)}
		h.by[principal] = o
	}
	o.calls++
	return o.slots, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if o.calls--; o.calls == 0 {
			delete(h.by, principal)
		}
	}
}
