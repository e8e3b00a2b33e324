package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/caponier-mcp/caponier/host/cluster"
	"github.com/caponier-mcp/caponier/host/terms"
)

// world is a cluster whose nodes tell what it holds, on a clock that the test sets.
type world struct {
	mu     sync.Mutex
	now    time.Time
	list   cluster.List
	broken map[string]error // by node
	asked  []string
	hold   chan struct{} // a read waits for it, if there is one
}

func newWorld(ids ...string) (*world, *Inventory) {
	w := &world{now: time.Unix(1_700_000_000, 0), broken: map[string]error{}}
	for _, id := range ids {
		w.list.Guests = append(w.list.Guests,
			cluster.Guest{VMID: id, Kind: "lxc", Node: "pve1", Status: "running",
				Name: "g" + id, Tags: []string{"t" + id}})
	}
	return w, &Inventory{Call: w.call, wait: w.pass, Now: func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.now
	}}
}

func (w *world) call(ctx context.Context, tool string, args any) terms.Answer {
	node := args.(map[string]any)["node"].(string)
	w.mu.Lock()
	w.asked = append(w.asked, node)
	list, hold, err := w.list, w.hold, w.broken[node]
	w.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return terms.Answer{Err: ctx.Err()}
		}
	}
	if tool != toolName {
		err = fmt.Errorf("tool %s", tool)
	}
	data, _ := json.Marshal(list)
	return terms.Answer{Err: err, Output: terms.Output{JSON: data}}
}

func (w *world) pass(d time.Duration) { w.mu.Lock(); w.now = w.now.Add(d); w.mu.Unlock() }

func (w *world) reads() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.asked, " ")
}

var inventory = []terms.Node{{Name: "pve1", Cluster: "lab"}, {Name: "pve2", Cluster: "lab"},
	{Name: "far", Cluster: "other"},
	{Name: "alone"}, {Name: "alone2"}}

func question(nodes []string, ids ...string) terms.Question {
	return terms.Question{Kind: terms.KindCall, Call: &terms.Call{ID: "c", Nodes: inventory,
		Targets: terms.Targets{Nodes: nodes, VMIDs: ids}}}
}

func lacking(ids ...string) terms.Decision {
	return terms.Decision{Guests: ids, GuestAge: 30 * time.Second}
}

func TestAClusterIsReadAgainWhenItsFactsAreTooOldOrAGuestIsUnknown(t *testing.T) {
	w, v := newWorld("101", "105")
	q := question([]string{"pve1"}, "105")
	for _, step := range []struct {
		claim string
		pass  time.Duration
		ids   []string
		reads int
		age   int64
	}{
		{"the first time", 0, []string{"105"}, 1, 0},
		{"young facts do", 10 * time.Second, []string{"105", "101"}, 1, 10},
		{"old facts do not", 25 * time.Second, []string{"105"}, 2, 0},
		{"a guest that is not listed", time.Second, []string{"140"}, 3, 0},
		{"nor then", 0, []string{"140"}, 3, 0},
		{"nor later", time.Second, []string{"140"}, 4, 0},
	} {
		w.pass(step.pass)
		facts := v.Guests(t.Context(), q, lacking(step.ids...))
		for _, id := range step.ids {
			g, is := facts[id]
			if !is || g.AgeS != step.age || (g.Kind == "") != (id == "140") {
				t.Errorf("%s: guest %s is %+v, %v", step.claim, id, g, is)
			}
		}
		if n := len(strings.Fields(w.reads())); n != step.reads {
			t.Errorf("%s: %d reads, want %d", step.claim, n, step.reads)
		}
	}
}

func TestAGuestWhoseNodeSentNothingIsLookedForAgain(t *testing.T) {
	w, v := newWorld("105")
	w.list.Guests[0].Status = "unknown"
	q := question([]string{"pve1"}, "105")
	v.Guests(t.Context(), q, lacking("105"))
	w.pass(time.Second)
	if g := v.Guests(t.Context(), q, lacking("105"))["105"]; g.Status != "unknown" ||
		w.reads() != "pve1 pve1" {
		t.Errorf("%+v after %s", g, w.reads())
	}
}

// A number that no guest has is never answered from what is known: whoever names such numbers has
// the cluster read once in two seconds, with whoever asks until then.
func TestCallersCannotCauseContinuousReads(t *testing.T) {
	w, v := newWorld("105")
	waits, begin := make(chan time.Duration, 99), make(chan struct{})
	v.wait = func(d time.Duration) {
		waits <- d
		<-begin
		w.pass(d)
	}
	q := question([]string{"pve1"}, "140")
	for _, step := range []struct{ pass, waits time.Duration }{
		{0, 0}, {500 * time.Millisecond, 1500 * time.Millisecond}, {3 * time.Second, 0}} {
		w.pass(step.pass)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if g, is := v.Guests(t.Context(), q, lacking("140"))["140"]; !is || g.Kind != "" {
					t.Errorf("%+v, %v", g, is)
				}
			})
		}
		if d := <-waits; d != step.waits {
			t.Errorf("%v later a read waits %v, want %v", step.pass, d, step.waits)
		}
		begin <- struct{}{}
		all.Wait()
	}
	if w.reads() != "pve1 pve1 pve1" {
		t.Errorf("read %s", w.reads())
	}
}

// asleep moves the wall clock of a time alone: its layout is in the package time.
func asleep(t time.Time, d time.Duration) time.Time {
	wall := (*uint64)(unsafe.Pointer(&t))
	*wall += uint64(int64(d/time.Second) << 30)
	return t
}

// Go's monotonic clock stands still while the machine sleeps, and the wall clock can be set back.
func TestAListAgesByTheFasterClock(t *testing.T) {
	_, v := newWorld()
	start := time.Now()
	for claim, now := range map[string]time.Time{
		"the machine slept":     asleep(start, time.Hour),
		"the clock is set back": asleep(start, -time.Hour).Add(time.Hour),
	} {
		v.Now = func() time.Time { return now }
		if age := v.age(&kept{asked: start}); age < 59*time.Minute {
			t.Errorf("%s: the list is %v old", claim, age)
		}
	}
}

func TestWaitersShareOneRead(t *testing.T) {
	w, v := newWorld("105")
	w.hold = make(chan struct{})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if facts := v.Guests(t.Context(), question([]string{"pve1"}, "105"),
				lacking("105")); facts["105"].Kind != "lxc" {
				t.Errorf("%+v", facts)
			}
		})
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if facts := v.Guests(gone, question([]string{"pve1"}, "105"), lacking("105")); facts != nil {
		t.Errorf("a call that has ended: %+v", facts)
	}
	close(w.hold)
	all.Wait()
	if w.reads() != "pve1" {
		t.Errorf("read %s", w.reads())
	}
}

// A guest is absent only by a list that was asked for after the question came.
func TestAReadThatBeganBeforeDoesNotShowThatAGuestIsAbsent(t *testing.T) {
	w, v := newWorld("101")
	w.hold = make(chan struct{})
	first := make(chan map[string]terms.Guest)
	go func() {
		first <- v.Guests(t.Context(), question([]string{"pve1"}, "101"),
			lacking("101"))
	}()
	for w.reads() == "" {
		time.Sleep(time.Millisecond)
	}
	w.pass(time.Second)
	w.mu.Lock() // the guest is made while the first read is under way
	w.list.Guests = append(w.list.Guests, cluster.Guest{VMID: "140", Kind: "lxc", Node: "pve1",
		Status: "running", Tags: []string{"prod"}})
	hold := w.hold
	w.mu.Unlock()
	second := make(chan map[string]terms.Guest)
	go func() {
		second <- v.Guests(t.Context(), question([]string{"pve1"}, "140"),
			lacking("140"))
	}()
	close(hold)
	if facts := <-first; facts["101"].Kind != "lxc" {
		t.Errorf("%+v", facts)
	}
	if facts := <-second; len(facts["140"].Tags) != 1 {
		t.Errorf("the new guest: %+v", facts)
	}
}

func TestAnotherNodeOfTheClusterIsAsked(t *testing.T) {
	w, v := newWorld("105")
	w.broken["pve2"] = errors.New("away")
	if facts := v.Guests(t.Context(), question([]string{"pve2"}, "105"),
		lacking("105")); facts["105"].Kind != "lxc" ||
		w.reads() != "pve2 pve1" {
		t.Errorf("%+v after %s", facts, w.reads())
	}
	w.broken["pve1"] = errors.New("away too")
	w.pass(time.Minute)
	if facts := v.Guests(t.Context(), question([]string{"pve2"}, "105"),
		lacking("105")); facts != nil {
		t.Errorf("nobody told: %+v", facts)
	}
	if strings.Contains(w.reads(), "far") || strings.Contains(w.reads(), "alone") {
		t.Errorf("read %s", w.reads())
	}
}

func TestANumberIsAGuestOfOneCluster(t *testing.T) {
	w, v := newWorld("105")
	for _, nodes := range [][]string{{"pve1", "far"}, {"alone", "alone2"}, {"pve9"}, {}} {
		if facts := v.Guests(t.Context(), question(nodes, "105"), lacking("105")); facts != nil ||
			w.reads() != "" {
			t.Errorf("%v: %+v, read %q", nodes, facts, w.reads())
		}
	}
	q := question([]string{"pve1", "far"}, "105") // an operation is about its node
	q.Node = &inventory[2]
	if facts := v.Guests(t.Context(), q, lacking("105")); facts["105"].Kind != "lxc" ||
		w.reads() != "far" {
		t.Errorf("%+v, read %q", facts, w.reads())
	}
	if facts := v.Guests(t.Context(), question([]string{"pve1"}, "105"),
		lacking("105")); facts == nil || w.reads() != "far pve1" {
		t.Errorf("of another cluster: %+v, read %q", facts, w.reads())
	}
}

func TestOnlyANodeWithOthersInItsClusterIsAMember(t *testing.T) {
	for node, want := range map[string]bool{"pve1": true, "pve2": true, "far": false,
		"alone": false, "pve9": false} {
		c := &terms.Call{Nodes: inventory, Args: terms.Args{Value: map[string]any{"node": node}}}
		if member(c) != want {
			t.Errorf("%s: want %v", node, want)
		}
	}
}

type deciding func(terms.Question) terms.Decision

func (d deciding) Decide(_ context.Context, q terms.Question) (terms.Decision, error) {
	return d(q), nil
}

func TestDecisionsUseCachedFactsWithoutARead(t *testing.T) {
	w, v := newWorld("105")
	var seen map[string]terms.Guest
	d := v.Decider(deciding(func(q terms.Question) terms.Decision {
		seen = q.Facts.Guests
		return terms.Decision{}
	}))
	q := question([]string{"pve1"}, "105", "140")
	if _, err := d.Decide(t.Context(), q); err != nil || seen != nil || w.reads() != "" {
		t.Errorf("before any read: %+v, %v, %q", seen, err, w.reads())
	}
	v.Guests(t.Context(), q, lacking("105"))
	w.pass(time.Hour)
	if _, err := d.Decide(t.Context(), q); err != nil || len(seen) != 1 ||
		seen["105"].AgeS != 3600 || w.reads() != "pve1" {
		t.Errorf("an hour later: %+v, %v, %q", seen, err, w.reads())
	}
}
