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
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/gate"
)

// Snapshot is one that the host took, or was about to take. Only these are ever removed.
type Snapshot struct {
	Cluster   string    `json:"cluster"`
	Node      string    `json:"node"` // that the host asked
	VMID      string    `json:"vmid"`
	Name      string    `json:"name"`
	Call      string    `json:"call"` // that it was taken for
	Principal string    `json:"principal"`
	Tool      string    `json:"tool"`
	Made      time.Time `json:"made"`
	Expires   time.Time `json:"expires"`
	Running   bool      `json:"running"` // the guest was, when it was taken
	Keep      int       `json:"-"`       // of this guest's, as the site said then
	Taken     bool      `json:"taken"`   // else it may not be there
	On        string    `json:"on"`      // node of the guest, when it was taken
	Program   string    `json:"program"` // pct or qm
}

// Book records snapshots. It must be safe for concurrent use.
type Book interface {
	// PutSnapshot adds a snapshot, or changes what is recorded of it. The record is on the disk
	// when it returns.
	PutSnapshot(context.Context, Snapshot) error
	// Snapshots lists them, the oldest first.
	Snapshots(context.Context) ([]Snapshot, error)
	RemoveSnapshot(context.Context, Snapshot) error

	// PutStep adds a step of a call, or changes what is recorded of it, as PutSnapshot does.
	PutStep(context.Context, Step) error
	// Steps lists those of a call in their order.
	Steps(ctx context.Context, call string) ([]Step, error)
	// RemoveSteps removes those that have expired.
	RemoveSteps(ctx context.Context, now time.Time) error
}

// Keeper executes operations, each after a snapshot of the guests that its decision names. It takes
// one of a guest for a call, before the first of these operations. No field may be nil.
type Keeper struct {
	gate.Executor
	Book Book
	// Call makes a call of a tool as the host.
	Call func(ctx context.Context, tool string, args any) gate.Answer
	Now  func() time.Time

	mu    sync.Mutex // guards what follows
	taken map[string]bool
	steps map[string]int // that were recorded, by call
}

// Execute implements gate.Executor.
func (k *Keeper) Execute(ctx context.Context, q gate.Question, d gate.Decision) (
	gate.Result, error) {
	for _, id := range d.Obligations.Snapshot.VMIDs {
		if err := k.first(ctx, q, id, d.Obligations.Snapshot); err != nil {
			return gate.Result{}, err
		}
	}
	if d.Obligations.Undo.Record {
		return k.record(ctx, q, d)
	}
	return k.Executor.Execute(ctx, q, d)
}

// End implements gate.Executor.
func (k *Keeper) End(ctx context.Context, c *gate.Call) {
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
func (k *Keeper) first(ctx context.Context, q gate.Question, id string, o gate.Snapshot) error {
	c, key := q.Call, q.Call.ID+" "+q.Node.Cluster+" "+id
	k.mu.Lock()
	has := k.taken[key]
	k.mu.Unlock()
	if has {
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
			return &gate.OpError{Code: "no_snapshot", Outcome: gate.Failed,
				Message: fmt.Sprintf("no snapshot of guest %s could be taken before it is "+
					"changed, so nothing was done: %v", id, err)}
		}
		slog.Warn("a guest is changed without a snapshot, as the site allows", "guest", id,
			"call", c.ID, "error", err)
	}
	k.mu.Lock()
	if k.taken == nil {
		k.taken = map[string]bool{}
	}
	k.taken[key] = true
	k.mu.Unlock()
	return nil
}

// take records a snapshot, takes it, and records that it is there.
func (k *Keeper) take(ctx context.Context, s Snapshot) error {
	if err := k.Book.PutSnapshot(ctx, s); err != nil {
		return err
	}
	a := k.Call(ctx, takeName, s.args())
	if op := (*gate.OpError)(nil); a.Outcome == gate.Refusal ||
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
