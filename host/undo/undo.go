// Package undo keeps what takes calls back.
package undo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
)

// Execute implements terms.Executor.
func (k *Keeper) Execute(ctx context.Context, q terms.Question, d terms.Decision) (
	terms.Result, error) {
	for _, id := range d.Obligations.Snapshot.VMIDs {
		if err := k.first(ctx, q, id, d.Obligations.Snapshot); err != nil {
			return terms.Result{}, err
		}
	}
	if d.Obligations.Undo.Record {
		return k.record(ctx, q, d)
	}
	return k.Executor.Execute(ctx, q, d)
}

// End implements terms.Executor.
func (k *Keeper) End(ctx context.Context, c *terms.Call) {
	k.mu.Lock()
	for key := range k.taken {
		if strings.HasPrefix(key, c.ID+" ") {
			delete(k.taken, key)
		}
	}
	delete(k.steps, c.ID)
	k.mu.Unlock()
	k.Executor.End(ctx, c)
}

// first takes a snapshot of a guest, unless this call has one of it.
func (k *Keeper) first(ctx context.Context, q terms.Question, id string, o terms.Snapshot) error {
	c, key := q.Call, q.Call.ID+" "+q.Node.Cluster+" "+id
	k.mu.Lock()
	if k.taken == nil {
		k.taken = map[string]*once{}
	}
	if k.taken[key] == nil {
		k.taken[key] = &once{}
	}
	taken := k.taken[key]
	k.mu.Unlock()
	taken.Lock() // operations of one list may begin together
	defer taken.Unlock()
	if taken.done {
		return nil
	}
	s := Snapshot{Cluster: q.Node.Cluster, Node: q.Node.Name, VMID: id, Name: nameFor(c.ID),
		Call: c.ID, Principal: c.Principal.ID, Tool: c.Tool.Name, Made: k.Now(), Keep: o.Keep}
	s.Expires = s.Made.Add(time.Duration(o.Days) * 24 * time.Hour)
	if q.Progress != nil {
		q.Progress(0, 0, "taking a snapshot of guest "+id)
	}
	if err := k.take(ctx, s); err != nil {
		if !o.Optional {
			return failed("no snapshot of guest %s could be taken before it is changed, so "+
				"nothing was done: %v", id, err)
		}
		slog.Warn("a guest is changed without a snapshot, as the site allows", "guest", id,
			"call", c.ID, "error", err)
	}
	taken.done = true
	return nil
}

// take records a snapshot, takes it, and records that it is there.
func (k *Keeper) take(ctx context.Context, s Snapshot) error {
	if err := k.Book.PutSnapshot(ctx, s); err != nil {
		return err
	}
	a := k.Call(ctx, takeName, s.args())
	if op := (*terms.OpError)(nil); a.Outcome == terms.Refusal ||
		errors.As(a.Err, &op) && op.Code == notTaken {
		_ = k.Book.RemoveSnapshot(ctx, s) // it is not there; a record that stays is harmless
	}
	if a.Err != nil {
		return a.Err
	}
	var is found
	if err := json.Unmarshal(a.Output.JSON, &is); err != nil {
		return err
	}
	s.Taken, s.Running, s.On, s.Program = true, is.Running, is.On, is.Program
	return k.Book.PutSnapshot(context.WithoutCancel(ctx), s)
}

func nameFor(call string) string { return "caponier-" + strings.ToLower(call) }

func (s Snapshot) args() map[string]any {
	return map[string]any{"node": s.Node, "vmid": s.VMID, "name": s.Name, "for": s.Call}
}

// Run removes, at once and then every hour until ctx ends, the snapshots that have expired, and the
// oldest of a guest that has more than the site keeps.
func (k *Keeper) Run(ctx context.Context) {
	for {
		if err := k.prune(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("removing old snapshots of the host", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Hour):
		}
	}
}

func (k *Keeper) prune(ctx context.Context) error {
	all, err := k.Book.Snapshots(ctx)
	errs := []error{err, k.Book.RemoveSteps(ctx, k.Now())}
	for _, s := range old(all, k.Now()) {
		if ctx.Err() != nil {
			break
		}
		a := k.Call(ctx, pruneName, s.args())
		if a.Err == nil {
			a.Err = k.Book.RemoveSnapshot(ctx, s)
		}
		if a.Err != nil {
			errs = append(errs, fmt.Errorf("%s of guest %s: %w", s.Name, s.VMID, a.Err))
		}
	}
	return errors.Join(errs...)
}

// old returns those snapshots that go: the expired, and the oldest of a guest that has more than
// the last one says are kept.
func old(all []Snapshot, now time.Time) (gone []Snapshot) {
	kept := map[string]int{}
	most := map[string]int{}
	for _, s := range slices.Backward(all) { // the newest first
		guest := s.Cluster + " " + s.VMID
		if _, seen := most[guest]; !seen {
			most[guest] = s.Keep
		}
		if kept[guest]++; !now.Before(s.Expires) || kept[guest] > most[guest] {
			gone = append(gone, s)
		}
	}
	return gone
}
