package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"slices"

	"github.com/caponier-mcp/caponier/host/remote"
	"github.com/caponier-mcp/caponier/host/sweep"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// openRemote opens the nodes. The store must be open.
func (h *host) openRemote() (err error) {
	name, _ := os.Hostname()
	id := sha256.Sum256([]byte(name + "\x00" + h.cfg.Store.Dir))
	o := h.cfg.Remote
	o.HostID = hex.EncodeToString(id[:4]) // the same for all processes that share the store
	o.Made = func(node, name string) error {
		return h.store.stages.PutStage(context.Background(), terms.StageDir{Node: node, Dir: name})
	}
	o.Removed = func(node, name string) {
		at := terms.StageDir{Node: node, Dir: name}
		if err := h.store.stages.RemoveStage(context.Background(), at); err != nil {
			slog.Warn("a record stays of what was removed", "error", err)
		}
	}
	o.Dead = h.store.stages.DeadStages
	o.Missing = func(node, name string) bool {
		at := terms.StageDir{Node: node, Dir: name}
		forgotten, err := h.store.stages.MissedStage(context.Background(), at)
		if err != nil {
			slog.Warn("a record stays of what is not there", "error", err)
		}
		return forgotten
	}
	if h.remote, err = remote.New(o); err != nil {
		return err
	}
	h.closers = append(h.closers, func() { _ = h.remote.Close() })
	return nil
}

// connect begins to connect to the node that an allowed call names, while its plugin is made ready,
// if its tool can ask for an operation on a node at all.
func (h *host) connect(c *terms.Call) {
	onNode := func(name string) bool { op, _ := abi.Lookup(name); return op.OnNode }
	if nodes := c.Targets.Nodes; len(nodes) == 1 && slices.ContainsFunc(c.Tool.Imports, onNode) {
		h.remote.Connect(nodes[0])
	}
}

// sweep removes in the background what earlier processes left on nodes and in the workspace.
func (h *host) sweep(ctx context.Context) {
	s := sweep.Sweeper{Left: h.remote.Leftovers, Call: h.native}
	h.background(ctx, s.Run)
}
