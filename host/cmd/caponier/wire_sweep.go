package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"sync"

	"github.com/caponier-mcp/caponier/host/gate"
	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/caponier-mcp/caponier/host/sweep"
)

// openRemote opens the nodes, and removes in the background what earlier processes left there and
// in the workspace. The store must be open.
func (h *host) openRemote(ctx context.Context) (err error) {
	ctx, stop := context.WithCancel(ctx)
	name, _ := os.Hostname()
	id := sha256.Sum256([]byte(name + "\x00" + h.cfg.Store.Dir))
	o := h.cfg.Remote
	o.HostID = hex.EncodeToString(id[:4]) // the same for all processes that share the store
	o.Made = func(node, name string) error {
		return h.store.PutStage(context.Background(), gate.StageDir{Node: node, Dir: name})
	}
	o.Removed = func(node, name string) {
		at := gate.StageDir{Node: node, Dir: name}
		if err := h.store.RemoveStage(context.Background(), at); err != nil {
			slog.Warn("a record stays of what was removed", "error", err)
		}
	}
	if h.remote, err = remote.New(o); err != nil {
		stop()
		return err
	}
	h.closers = append(h.closers, func() { _ = h.remote.Close() })
	var sweeps sync.WaitGroup
	sweeps.Go(func() {
		sweep.Sweeper{
			Left: func(ctx context.Context) ([]gate.StageDir, error) {
				dead, err := h.store.DeadStages(ctx)
				return append(dead, h.remote.Abandoned()...), err
			},
			Clean: func(ctx context.Context, at gate.StageDir) error {
				return h.remote.Clean(ctx, at.Node, at.Dir)
			},
		}.Run(ctx)
	})
	h.closers = append(h.closers, func() { stop(); sweeps.Wait() })
	return nil
}
