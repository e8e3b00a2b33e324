// Package inventory caches what clusters report about their guests, as facts for policy.
package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/cluster"
	"github.com/caponier-mcp/caponier/host/terms"
)

const (
	maxNodes = 3                // of a cluster that are asked, one after the other
	deadline = 20 * time.Second // for all of them
	spacing  = 2 * time.Second  // between the beginnings of two reads of a cluster
)

// Inventory keeps one list for each cluster. It reads a list again if a decision needs a newer one,
// or a guest that is not in it. Its methods may be called concurrently.
type Inventory struct {
	// Call makes a call of a tool as the host. It must not be nil.
	Call func(ctx context.Context, tool string, args any) terms.Answer
	Now  func() time.Time // not nil

	mu   sync.Mutex
	kept map[string]*kept    // by cluster; a node without one is a cluster of its own
	wait func(time.Duration) // nil: time.Sleep
}

// kept is the cached state of a cluster, guarded by the inventory's mu.
type kept struct {
	list  cluster.List
	asked time.Time // when the list was asked for; zero: never
	// protection is what configurations said that were read since then, by VMID: on or off
	protection map[string]string
	reading    *reading  // nil: nobody reads
	began      time.Time // when the last read began
}

// reading is one read of a cluster, shared by all callers that wait for it.
type reading struct {
	began time.Time     // perhaps soon
	done  chan struct{} // closed when err is set
	err   error
}

// Guests returns the facts of the question's cluster about the guests that its decision lacks, and
// about those that its call names. A guest that does not exist has no kind; Guests reports this
// only from a list that was requested after the question arrived. It returns nil and logs the error
// if the cluster could not be read.
func (v *Inventory) Guests(ctx context.Context, q terms.Question, d terms.Decision) (
	facts map[string]terms.Guest) {
	on, err := placeOf(q)
	if err == nil {
		err = v.fresh(ctx, on, d)
	}
	if err != nil {
		slog.Warn("what the cluster says of guests is not known, so what depends on it is refused",
			"call", q.Call.ID, "guests", d.Guests, "error", err)
		return nil
	}
	if d.GuestConfigs {
		v.configs(ctx, q, on, d.Guests)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	facts = v.known(on, q.Call.Targets.VMIDs)
	k := v.kept[on.cluster]
	for _, id := range d.Guests {
		g, _ := k.list.Guest(id)
		facts[id] = v.fact(g, k)
	}
	return facts
}

// configs reads the configurations of these guests, unless they were read since the list of their
// cluster. If one cannot be read, it stays unknown, and configs logs the error.
func (v *Inventory) configs(ctx context.Context, q terms.Question, on place, ids []string) {
	v.mu.Lock()
	k := v.kept[on.cluster]
	asked, known := k.asked, k.list
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		g, is := known.Guest(id)
		return !is || !g.Known() || k.protection[id] != ""
	})
	v.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			g, _ := known.Guest(id)
			node := g.Node
			if !slices.Contains(on.nodes, node) { // any member of the cluster can tell
				node = on.nodes[0]
			}
			said, err := protection(ctx, v.Call, node, id)
			if err != nil {
				slog.Warn("the configuration of a guest is not known, so what depends on it is "+
					"refused", "call", q.Call.ID, "guest", id, "error", err)
				return
			}
			v.mu.Lock()
			defer v.mu.Unlock()
			if k.asked.Equal(asked) { // else it may be older than the list
				k.protection[id] = said
			}
		})
	}
	all.Wait()
}

// Decider decides with the cached facts of a call's guests, and never waits. Policy checks their
// age.
func (v *Inventory) Decider(next terms.Decider) terms.Decider { return decider{next, v} }

type decider struct {
	terms.Decider
	v *Inventory
}

func (d decider) Decide(ctx context.Context, q terms.Question) (terms.Decision, error) {
	if q.Facts.Guests == nil && q.Call != nil && len(q.Call.Targets.VMIDs) > 0 {
		if on, err := placeOf(q); err == nil {
			d.v.mu.Lock()
			q.Facts.Guests = d.v.known(on, q.Call.Targets.VMIDs)
			d.v.mu.Unlock()
		}
	}
	return d.Decider.Decide(ctx, q)
}

// known returns those of the guests that the list of the cluster contains, or nil without a list.
func (v *Inventory) known(on place, ids []string) map[string]terms.Guest {
	k := v.kept[on.cluster]
	if k == nil || k.asked.IsZero() {
		return nil
	}
	facts := map[string]terms.Guest{}
	for _, id := range ids {
		if g, is := k.list.Guest(id); is {
			facts[id] = v.fact(g, k)
		}
	}
	return facts
}

func (v *Inventory) fact(g cluster.Guest, k *kept) terms.Guest {
	return terms.Guest{Name: g.Name, Kind: g.Kind, Node: g.Node, Status: g.Status, Tags: g.Tags,
		Pool: g.Pool, Template: g.Template, HA: g.HA, Protection: k.protection[g.VMID],
		AgeS: int64((v.age(k) + time.Second - 1) / time.Second)}
}

// age returns the age of the list, by the monotonic clock or the wall clock, whichever is greater.
// The monotonic clock stops while the machine sleeps, and the wall clock can be set back.
func (v *Inventory) age(k *kept) time.Duration {
	now := v.Now()
	return max(now.Sub(k.asked), now.Round(0).Sub(k.asked.Round(0)))
}

// place is a cluster, with its nodes in the order in which they are asked.
type place struct {
	cluster string // a node without one is a cluster of its own
	nodes   []string
}

// placeOf returns the cluster whose guests a question names by number: the cluster of the node of
// an operation, or of the nodes of a call.
func placeOf(q terms.Question) (place, error) {
	var on place
	names := q.Call.Targets.Nodes
	if q.Node != nil {
		names = []string{q.Node.Name}
	}
	for _, n := range q.Call.Nodes {
		if !slices.Contains(names, n.Name) && len(names) > 0 {
			continue
		}
		if c := clusterOf(n); on.cluster == "" || on.cluster == c {
			on.cluster, on.nodes = c, append(on.nodes, n.Name)
		} else {
			return on, errors.New("it is about nodes of more than one cluster, in each of which " +
				"a number is another guest")
		}
	}
	for _, n := range q.Call.Nodes {
		if clusterOf(n) == on.cluster && !slices.Contains(on.nodes, n.Name) {
			on.nodes = append(on.nodes, n.Name)
		}
	}
	if len(on.nodes) == 0 {
		return on, errors.New("it is about no node of the inventory")
	}
	on.nodes = on.nodes[:min(len(on.nodes), maxNodes)]
	return on, nil
}

func clusterOf(n terms.Node) string {
	if n.Cluster == "" {
		return "node " + n.Name
	}
	return "cluster " + n.Cluster
}

// fresh returns when the list of a cluster is as new as the decision wants it, and has its guests
// or was asked for after now.
func (v *Inventory) fresh(ctx context.Context, on place, d terms.Decision) error {
	arrived := v.Now()
	for {
		r, ready := v.join(ctx, on, d, arrived)
		if ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.done:
		}
		if r.err != nil && !r.began.Before(arrived) {
			return r.err
		}
	}
}

// join reports that the list is as fresh as it must be, or returns the read to wait for.
func (v *Inventory) join(ctx context.Context, on place, d terms.Decision, arrived time.Time) (
	r *reading, ready bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.kept[on.cluster]
	if k == nil {
		if v.kept == nil {
			v.kept = map[string]*kept{}
		}
		k = &kept{}
		v.kept[on.cluster] = k
	}
	has := func(id string) bool { g, is := k.list.Guest(id); return is && g.Known() }
	switch {
	case k.asked.IsZero():
	case !k.asked.Before(arrived):
		return nil, true
	case v.age(k)+time.Second <= d.GuestAge &&
		!slices.ContainsFunc(d.Guests, func(id string) bool { return !has(id) }):
		return nil, true
	}
	if k.reading == nil {
		now, later := v.Now(), time.Duration(0)
		if !k.began.IsZero() {
			later = min(max(spacing-now.Sub(k.began), 0), spacing)
		}
		k.began = now.Add(later)
		k.reading = &reading{began: k.began, done: make(chan struct{})}
		go v.read(context.WithoutCancel(ctx), on, k, later)
	}
	return k.reading, false
}

// read asks the nodes of a cluster, one after the other, until one answers. It starts after a
// delay, so that callers cannot cause continuous reads. Callers during the delay share this read.
func (v *Inventory) read(ctx context.Context, on place, k *kept, later time.Duration) {
	if wait := v.wait; wait != nil {
		wait(later)
	} else {
		time.Sleep(later)
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	var list cluster.List
	var asked time.Time
	errs := []error{}
	for _, node := range on.nodes {
		var err error
		asked = v.Now()
		if list, err = v.ask(ctx, node); err == nil {
			errs = nil
			break
		}
		errs = append(errs, fmt.Errorf("%s: %w", node, err))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	r := k.reading
	if r.err = errors.Join(errs...); r.err == nil {
		k.list, k.asked, k.protection = list, asked, map[string]string{}
	}
	k.reading = nil
	close(r.done)
}

func (v *Inventory) ask(ctx context.Context, node string) (list cluster.List, err error) {
	a := v.Call(ctx, toolName, map[string]any{"node": node})
	if a.Err != nil {
		return list, a.Err
	}
	err = json.Unmarshal(a.Output.JSON, &list)
	return list, err
}
