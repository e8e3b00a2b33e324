package undo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// world is what a Keeper works with.
type world struct {
	terms.Executor // nil: nothing else is asked of it
	events         []string
	book           []Snapshot
	broken         error // of PutSnapshot
	refuse         error // of Call
}

func (w *world) Execute(context.Context, terms.Question, terms.Decision) (terms.Result, error) {
	w.events = append(w.events, "execute")
	return terms.Result{}, nil
}
func (w *world) End(context.Context, *terms.Call) { w.events = append(w.events, "end") }
func (w *world) PutSnapshot(_ context.Context, s Snapshot) error {
	w.events = append(w.events, fmt.Sprintf("put %s %v", s.VMID, s.Taken))
	if w.broken != nil {
		return w.broken
	}
	w.book = slices.DeleteFunc(w.book, func(o Snapshot) bool {
		return o.Name == s.Name && o.VMID == s.VMID
	})
	w.book = append(w.book, s)
	return nil
}
func (w *world) Snapshots(context.Context) ([]Snapshot, error) { return slices.Clone(w.book), nil }
func (w *world) RemoveSnapshot(_ context.Context, s Snapshot) error {
	w.events = append(w.events, "remove "+s.Name)
	w.book = slices.DeleteFunc(w.book, func(o Snapshot) bool {
		return o.Name == s.Name && o.VMID == s.VMID
	})
	return nil
}

func (w *world) PutStep(context.Context, Step) error           { return nil }
func (w *world) Steps(context.Context, string) ([]Step, error) { return nil, nil }
func (w *world) RemoveSteps(context.Context, time.Time) error  { return nil }

func (w *world) keeper(now time.Time) *Keeper {
	return &Keeper{Executor: w, Book: w, Now: func() time.Time { return now },
		Call: func(_ context.Context, tool string, args any) terms.Answer {
			w.events = append(w.events, fmt.Sprint(tool, " ", args.(map[string]any)["vmid"]))
			a := terms.Answer{Err: w.refuse, Output: terms.Output{JSON: []byte(`{"running":true}`)}}
			if errors.Is(w.refuse, terms.ErrRefused) {
				a.Outcome = terms.Refusal
			}
			return a
		}}
}

const call = "01ABCDEFGHIJKLMNOPQRSTUV00"

func stop(id string) terms.Question {
	return terms.Question{Op: abi.SSHExec{}, Node: &terms.Node{Name: "pve1", Cluster: "lab"},
		Call: &terms.Call{ID: call, Principal: terms.Principal{ID: "ann"},
			Tool: &terms.Tool{Name: "stop"}}}
}

func first(optional bool, ids ...string) terms.Decision {
	return terms.Decision{Allow: true, Obligations: terms.Obligations{
		Snapshot: terms.Snapshot{VMIDs: ids, Optional: optional, Keep: 2, Days: 7}}}
}

func TestASnapshotIsRecordedAndTakenBeforeAndOnceForACall(t *testing.T) {
	w, now := &world{}, time.UnixMilli(1e12)
	k := w.keeper(now)
	for range 2 {
		if _, err := k.Execute(t.Context(), stop("105"), first(false, "105")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := k.Execute(t.Context(), stop("105"), terms.Decision{Allow: true}); err != nil {
		t.Fatal(err)
	}
	want := []string{"put 105 false", "take_snapshot 105", "put 105 true", "execute", "execute",
		"execute"}
	if !slices.Equal(w.events, want) {
		t.Errorf("%q", w.events)
	}
	s := w.book[0]
	if s.Name != "caponier-"+strings.ToLower(call) || s.Call != call || s.Principal != "ann" ||
		s.Cluster != "lab" ||
		!s.Expires.Equal(now.Add(7*24*time.Hour)) || s.Keep != 2 || !s.Running {
		t.Errorf("recorded %+v", s)
	}
	k.End(t.Context(), stop("105").Call)
	if len(k.taken) != 0 {
		t.Errorf("kept of a call that ended: %v", k.taken)
	}
}

// The files of a list are uploaded together. None is, before the one snapshot has been taken.
func TestOperationsThatBeginTogetherShareASnapshot(t *testing.T) {
	w := &world{}
	k := w.keeper(time.UnixMilli(1e12))
	var taken, calls atomic.Int64
	k.Executor = during{w, func() {
		if taken.Load() == 0 {
			t.Error("an operation was executed before the snapshot")
		}
	}}
	k.Call = func(context.Context, string, any) terms.Answer {
		calls.Add(1)
		time.Sleep(20 * time.Millisecond)
		taken.Add(1)
		return terms.Answer{Output: terms.Output{JSON: []byte(`{"running":true}`)}}
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := k.Execute(t.Context(), stop("105"), first(false, "105")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if calls.Load() != 1 {
		t.Errorf("%d snapshots", calls.Load())
	}
}

// during executes nothing, and calls a function meanwhile.
type during struct {
	terms.Executor
	do func()
}

func (d during) Execute(context.Context, terms.Question, terms.Decision) (terms.Result, error) {
	d.do()
	return terms.Result{}, nil
}

func TestWithoutASnapshotNothingIsDone(t *testing.T) {
	refused := &terms.Refused{Failed: []string{"freeze"}}
	for name, tt := range map[string]struct {
		broken, refuse error
		optional       bool
		want           []string
	}{
		"the node fails": {nil, errors.New("no storage"), false,
			[]string{"put 105 false", "take_snapshot 105"}},
		"the host may not": {nil, refused, false,
			[]string{"put 105 false", "take_snapshot 105", "remove caponier-" +
				strings.ToLower(call)}},
		"it cannot be recorded": {errors.New("full"), nil, false, []string{"put 105 false"}},
		"the site goes on without": {nil, errors.New("no storage"), true,
			[]string{"put 105 false", "take_snapshot 105", "execute"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{broken: tt.broken, refuse: tt.refuse}
			_, err := w.keeper(time.Now()).Execute(t.Context(), stop("105"),
				first(tt.optional, "105"))
			op := (*terms.OpError)(nil)
			if !tt.optional && (!errors.As(err, &op) || op.Code != "no_snapshot" ||
				op.Outcome != terms.Failed) {
				t.Errorf("error %v", err)
			}
			if tt.optional && err != nil {
				t.Error(err)
			}
			if !slices.Equal(w.events, tt.want) {
				t.Errorf("%q", w.events)
			}
		})
	}
}

func TestOnlyWhatIsOldAndRecordedGoes(t *testing.T) {
	now := time.UnixMilli(1e12)
	s := func(id, name string, age time.Duration, keep int) Snapshot {
		return Snapshot{Cluster: "lab", VMID: id, Name: name, Made: now.Add(-age),
			Expires: now.Add(24*time.Hour - age), Keep: keep}
	}
	w := &world{book: []Snapshot{s("105", "expired", 24*time.Hour, 9),
		s("105", "third", 3*time.Hour, 9),
		s("106", "other", 3*time.Hour, 1), s("105", "second", 2*time.Hour, 9),
		s("105", "first", time.Hour, 2)}}
	k := w.keeper(now)
	if err := k.prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, s := range w.book {
		left = append(left, s.Name)
	}
	if !slices.Equal(left, []string{"other", "second", "first"}) {
		t.Errorf("left %v, events %q", left, w.events)
	}
	w.book = []Snapshot{s("105", "expired", 24*time.Hour, 9)}
	w.refuse = errors.New("the node is away")
	if err := k.prune(t.Context()); err == nil || len(w.book) != 1 {
		t.Errorf("forgotten although it may be there: %v, %v", w.book, err)
	}
}
