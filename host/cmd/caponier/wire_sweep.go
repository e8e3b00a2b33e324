package main

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/caponier-mcp/caponier/host/sweep"
)

// openRemote opens the nodes, and removes in the background what earlier processes left there and
// in the workspace.
func (h *host) openRemote(ctx context.Context) error {
	book, err := sweep.Open(filepath.Join(h.cfg.Store.Dir, "temporary"))
	if err != nil {
		return err
	}
	h.closers = append(h.closers, func() { _ = book.Close() })
	o := h.cfg.Remote
	o.HostID, o.Made, o.Removed = book.HostID(), book.Made, book.Removed
	if h.remote, err = remote.New(o); err != nil {
		return err
	}
	h.closers = append(h.closers, func() { _ = h.remote.Close() })
	ctx, stop := context.WithCancel(ctx)
	var sweeps sync.WaitGroup
	sweeps.Go(func() {
		book.Run(ctx, func(ctx context.Context, r sweep.Record) error {
			if h.remote.InUse(r.Node, r.Name) {
				return sweep.ErrInUse
			}
			return h.remote.Clean(ctx, r.Node, r.Name)
		})
	})
	h.closers = append(h.closers, func() { stop(); sweeps.Wait() })
	return nil
}
