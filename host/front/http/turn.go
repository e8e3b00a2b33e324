package http

import (
	"context"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/fair"
)

// maxTurn bounds a turn, in case that the request waits for something before its handler begins.
const maxTurn = time.Second

// turn is the time for which a request computes before its handler begins: it is decoded more than
// once. Then the gate takes turns. It is safe for concurrent use; a nil turn does nothing.
type turn struct {
	mu    sync.Mutex
	timer *time.Timer
	over  func() // nil: not begun, or ended
}

type turnKey struct{}

// turnOf returns the turn of a request, nil if it has none.
func turnOf(ctx context.Context) *turn {
	t, _ := ctx.Value(turnKey{}).(*turn)
	return t
}

// begin waits for the caller's turn. The error is the cause of ctx.
func (t *turn) begin(ctx context.Context, turns *fair.Shares, who string) error {
	if t == nil {
		return nil
	}
	if err := turns.Acquire(ctx, who); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over, t.timer = func() { turns.Release(who) }, time.AfterFunc(maxTurn, t.end)
	return nil
}

// end ends the turn if it has begun.
func (t *turn) end() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		t.timer.Stop()
		t.over()
		t.over = nil
	}
}
