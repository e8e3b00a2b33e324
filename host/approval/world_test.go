package approval_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/store"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// world is one state directory, with a clock that a test can move.
type world struct {
	t       testing.TB
	dir     string
	ahead   atomic.Int64 // milliseconds
	base    time.Time
	a       *approval.Approvals
	s       *store.Store
	journal memory
}

func newWorld(t testing.TB, change ...func(*approval.Options)) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), base: time.UnixMilli(time.Now().UnixMilli())}
	w.a, w.s = w.process(change...)
	return w
}

func (w *world) now() time.Time {
	return w.base.Add(time.Duration(w.ahead.Load()) * time.Millisecond)
}

// process is another process on the same directory.
func (w *world) process(change ...func(*approval.Options)) (*approval.Approvals, *store.Store) {
	w.t.Helper()
	s, err := store.Open(store.Options{Dir: w.dir, Now: w.now})
	must(w.t, err)
	o := approval.Options{Wait: 20 * time.Millisecond, Poll: 5 * time.Millisecond,
		Approvers: []string{"ann", "bob", "Agent-A"}, Listen: "127.0.0.1:8443",
		Journal: &w.journal, Now: w.now,
		Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&o)
	}
	a, err := approval.New(o, s)
	must(w.t, err)
	w.t.Cleanup(func() { a.Close(); s.Close() })
	return a, s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// call is agent-a's deletion of guest 105.
func call() *terms.Call {
	return &terms.Call{
		ID:        "call1",
		Source:    "http",
		Principal: terms.Principal{ID: "agent-a", Auth: "token"},
		Tool: &terms.Tool{Kind: "tool", Name: "delete_guest", Runs: "pct destroy VMID",
			Commands: []string{"pct destroy", "pct status"},
			Plugin:   terms.Plugin{Name: "guests", Version: "1.0.0", Digest: "sha256:aa"}},
		Args: terms.Args{Value: map[string]any{"guest_id": int64(105)},
			Digest: "sha256:105"},
		Targets:      terms.Targets{Nodes: []string{"pve1"}, VMIDs: []string{"105"}},
		Nodes:        []terms.Node{{Name: "pve1", Cluster: "lab", Host: "192.0.2.1"}},
		Confirmation: terms.Confirmation{State: "none"},
	}
}

var red = terms.Decision{
	Tier:          terms.Red,
	NeedsApproval: true,
	Failed:        []string{"confirmation"},
	Denied:        []terms.Reason{{ID: "confirmation", Msg: "needs a person"}},
	Revision:      "rev1",
	Obligations: terms.Obligations{Channels: []string{approval.Terminal, approval.Web},
		Approvers: []string{"*"}},
}

// seen adds what policy shows of a call.
func seen(c *terms.Call, d terms.Decision) terms.Decision {
	if d.Input == nil {
		in, err := json.Marshal(map[string]any{"targets": c.Targets, "commands": c.Commands})
		shown, err2 := abi.Encode(c.Args.Value)
		if err = errors.Join(err, err2); err != nil {
			panic(err)
		}
		d.Input, d.Shown = in, shown
	}
	return d
}

func quiet(string) {}

// memory is a journal.
type memory struct {
	mu      sync.Mutex // guards the following
	records []terms.Record
	broken  error
}

func (m *memory) Intent(_ context.Context, r terms.Record, durable bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !durable {
		return errors.New("an answer must be on the disk")
	}
	m.records = append(m.records, r)
	return m.broken
}

func (m *memory) Outcome(_ context.Context, r terms.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = append(m.records, r)
	return nil
}

// is reports whether a confirmation is of one person, or of none.
func is(c terms.Confirmation, state, by, channel string) bool {
	if state == "approved" && (len(c.Answers) != 1 || c.Answers[0].By != by ||
		c.Answers[0].Channel != channel) {
		return false
	}
	return c.State == state && c.By == by && c.Channel == channel &&
		(state == "approved" || len(c.Answers) == 0)
}

// waits asserts that the call waits, and gives the request's id.
func (w *world) waits(c *terms.Call) string {
	w.t.Helper()
	got, err := w.a.Confirm(w.t.Context(), c, seen(c, red), quiet)
	waiting := (*terms.Waiting)(nil)
	if !errors.As(err, &waiting) || !is(got, "", "", "") {
		w.t.Fatalf("Confirm: %+v, %v; want *terms.Waiting", got, err)
	}
	return waiting.ApprovalID
}

func (w *world) approve(id string) {
	w.t.Helper()
	_, err := w.a.Decide(w.t.Context(),
		approval.Verdict{Request: id, Approve: true, By: "ann", Channel: "cli"})
	must(w.t, err)
}

func refusedFor(t *testing.T, err error, id string) *terms.Refused {
	t.Helper()
	no := (*terms.Refused)(nil)
	if !errors.As(err, &no) || len(no.Failed) != 1 || no.Failed[0] != id || no.NeedsApproval {
		t.Fatalf("got %v, want a refusal for %s", err, id)
	}
	return no
}
