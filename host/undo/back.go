package undo

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Tool is the one that undoes calls. A principal undoes its own. It is decided as every call.
const Tool = "undo_call"

// Records executes the operations that ask for what the host recorded.
type Records struct{ Keeper *Keeper }

// Lookup implements terms.Executor. It looks at what the call changed, so that what others changed
// since is not overwritten.
func (r Records) Lookup(ctx context.Context, q terms.Question) (terms.Facts, error) {
	op, is := q.Op.(abi.UndoSteps)
	if !is {
		return terms.Facts{}, nil
	}
	u, err := r.Keeper.back(ctx, op.Call, q.Call.Principal.ID)
	return terms.Facts{Undo: u}, err
}

// Execute implements terms.Executor.
func (r Records) Execute(ctx context.Context, q terms.Question, _ terms.Decision) (terms.Result,
	error) {
	if op, is := q.Op.(abi.Snapshots); is {
		all, err := r.Keeper.Book.Snapshots(ctx)
		list := abi.SnapshotsResponse{Snapshots: []abi.Snapshot{}}
		for _, s := range all {
			if op.All || s.Principal == q.Call.Principal.ID {
				list.Snapshots = append(list.Snapshots, abi.Snapshot{VMID: s.VMID,
					Cluster: s.Cluster, Node: s.Node, Name: s.Name, Call: s.Call,
					Principal: s.Principal, Tool: s.Tool, Made: s.Made.Unix(),
					Expires: s.Expires.Unix(), Taken: s.Taken})
			}
		}
		return terms.Result{Value: list}, err
	}
	if q.Facts.Undo == nil {
		return terms.Result{}, failed("nothing was looked up")
	}
	return terms.Result{Value: *q.Facts.Undo}, nil
}

// End implements terms.Executor.
func (Records) End(context.Context, *terms.Call) {}

// back returns what takes a call back, as far as the one who asks made it.
func (k *Keeper) back(ctx context.Context, call, who string) (*abi.UndoStepsResponse, error) {
	all, err := k.Book.Snapshots(ctx)
	if err != nil {
		return nil, err
	}
	steps, err := k.Book.Steps(ctx, call)
	if err != nil {
		return nil, err
	}
	u := &abi.UndoStepsResponse{Call: call, Steps: []abi.UndoStep{}}
	own := map[string]Snapshot{} // of this call, by guest
	for _, s := range all {
		if s.Call == call {
			own[s.VMID], u.Owner, u.Tool = s, s.Principal, s.Tool
		}
	}
	for _, s := range steps {
		u.Owner, u.Tool = s.Principal, s.Tool
	}
	if u.Owner == who {
		u.Bars, err = k.bars(ctx, steps, own, all)
		u.Steps = ways(steps, own)
		if u.Tool == Tool {
			u.Bars = "call " + call + " undid another one; make that one again instead"
		}
		if u.Bars == "" && !slices.ContainsFunc(u.Steps,
			func(s abi.UndoStep) bool { return s.None == "" }) {
			u.Bars = nothing(call, u.Steps)
		}
	}
	return u, err
}

func nothing(call string, steps []abi.UndoStep) string {
	if len(steps) == 0 {
		return "call " + call + " changed nothing that would have to be taken back"
	}
	return fmt.Sprintf("nothing takes call %s back: %s: %s", call, steps[0].Did, steps[0].None)
}

// ways are the steps that take a call back, the last of its steps first. A guest that has a
// snapshot is rolled back once.
func ways(steps []Step, own map[string]Snapshot) []abi.UndoStep {
	back, rolled := []abi.UndoStep{}, map[string]bool{}
	roll := func(id string) {
		if s, has := own[id]; has && !rolled[id] {
			rolled[id] = true
			back = append(back, s.rollback())
		}
	}
	for _, s := range slices.Backward(steps) {
		for _, id := range s.Back.Rollback {
			roll(id)
			if !rolled[id] {
				back = append(back, abi.UndoStep{Node: s.Node, Did: s.Did, None: "the host has " +
					"no snapshot of guest " + id + " any more"})
			}
		}
		step := abi.UndoStep{Node: s.Node, Did: s.Did, Argv: s.Back.Argv, Remove: s.Back.Remove,
			None: s.Back.None}
		if s.Ended == "" {
			step.Did += unseen
		}
		switch {
		case len(s.Back.Rollback) > 0 || s.Ended == string(terms.Failed),
			step.None == "" && s.Before.About != "" && s.Before.same(s.After):
			continue
		case s.Back.File != "":
			step.Write, step.Mode, step.Data = s.Back.File, s.Mode, abi.NewData(s.Before.Data)
		case step.Argv == nil && step.Remove == "" && step.None == "":
			continue
		}
		back = append(back, step)
	}
	for _, id := range slices.Sorted(maps.Keys(own)) { // the site records no steps
		roll(id)
	}
	return back
}

// unseen is said of a step whose outcome is unknown.
const unseen = " (its end was not seen; somebody else may have done this)"

// rollback sets a guest back, and starts it if it ran then.
func (s Snapshot) rollback() abi.UndoStep {
	u := abi.UndoStep{Node: s.On, Did: "what changed guest " + s.VMID + " since",
		Argv: []string{s.Program, "rollback", s.VMID, s.Name}}
	if s.Running {
		u.Argv = append(u.Argv, "--start", "1")
	}
	return u
}

// bars says why a call cannot be undone now, or "".
func (k *Keeper) bars(ctx context.Context, steps []Step, own map[string]Snapshot,
	all []Snapshot) (string, error) {
	for _, s := range own {
		if !s.Taken {
			return fmt.Sprintf("how the snapshot before call %s ended, whether guest %s has it, "+
				"and whether the call did anything, is not known", s.Call, s.VMID), nil
		}
		for _, later := range all {
			if later.Cluster == s.Cluster && later.VMID == s.VMID && later.Made.After(s.Made) {
				return fmt.Sprintf("guest %s was changed since by call %s: undo that one first",
					s.VMID, later.Call), nil
			}
		}
	}
	left := map[string]Step{} // the last one to change a thing
	for _, s := range steps {
		if s.Ended == "" && len(s.Back.Rollback) == 0 &&
			(s.After.About == "" || s.Back.None != "") {
			return notKnown(s), nil
		}
		if key := s.Node + " " + s.After.About; s.After.About != "" && s.Back.None == "" {
			if p, again := left[key]; again && !p.After.same(s.Before) {
				return fmt.Sprintf("something changed between steps %d and %d of it: %s", p.N, s.N,
					p.drifted(s.Before)), nil
			}
			left[key] = s
		}
	}
	for _, s := range left {
		if _, rolled := own[strings.TrimPrefix(s.After.About, "guest:")]; rolled {
			continue // what changed since is lost, which the plan says
		}
		now, err := k.look(ctx, s.Node, s.After.About, cmp.Or(s.MaxBytes, maxKept))
		if err != nil {
			return "", err
		}
		if why := s.drifted(now); why != "" {
			return why, nil
		}
	}
	return "", nil
}

func notKnown(s Step) string {
	return fmt.Sprintf("how step %d of it ended, %s on %s, is not known: look at the node", s.N,
		s.Did, s.Node)
}

// drifted says how what the step changed is no more as the step left it, or "".
func (s Step) drifted(now State) string {
	why := changed(s.After, now)
	if why != "" && s.Ended == "" {
		return notKnown(s)
	}
	return why
}

// changed says what is no more as a call left it, or "".
func changed(left, now State) string {
	what := strings.Replace(left.About, ":", " ", 1)
	switch {
	case left.Status == large || now.Status == large:
		return what + " is, or was after the call, too large to compare, or no regular file"
	case left.Status != now.Status && strings.HasPrefix(left.About, "file:"):
		return what + " holds something else than what the call left there"
	case left.Status != now.Status:
		return fmt.Sprintf("%s was %s after the call, and is %s", what, left.Status, now.Status)
	case left.Config != now.Config:
		return what + " has another configuration than the call left it with"
	}
	return ""
}
