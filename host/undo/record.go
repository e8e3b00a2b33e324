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

	"github.com/caponier-mcp/caponier/host/reverse"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// record executes an operation between two looks at what it changes, and records what takes it
// back.
func (k *Keeper) record(ctx context.Context, q terms.Question, d terms.Decision) (terms.Result,
	error) {
	o := d.Obligations.Undo
	s, err := k.before(ctx, q, d)
	if err == nil {
		err = k.Book.PutStep(ctx, s)
	}
	if err != nil {
		if !o.Optional {
			return terms.Result{}, terms.Fail("no_undo", "what takes this back could not be kept, "+
				"so nothing was done: %v", err)
		}
		slog.Warn("an operation is done that cannot be undone, as the site allows", "call",
			q.Call.ID, "error", err)
		s.Back = reverse.Way{None: "what it was before could not be kept: " + err.Error()}
		if err := k.Book.PutStep(ctx, s); err != nil {
			return terms.Result{}, err // the store is away
		}
	}
	res, done := k.Executor.Execute(ctx, q, d)
	s.Ended = string(terms.Succeeded)
	if op := (*terms.OpError)(nil); errors.As(done, &op) && op.Outcome == terms.Unknown {
		return res, done // as if the host had been killed: nobody knows
	} else if done != nil {
		s.Ended = string(terms.Failed)
	}
	if s.After = (State{}); s.Before.About != "" && s.Ended == string(terms.Succeeded) {
		after, err := k.look(ctx, s.Node, s.Before.About, o.MaxBytes)
		if after.Data = nil; err != nil {
			s.Back = reverse.Way{None: "how it left things could not be seen: " + err.Error()}
		}
		s.After = after
	}
	if err := k.Book.PutStep(context.WithoutCancel(ctx), s); err != nil {
		slog.Warn("recording what takes an operation back", "call", q.Call.ID, "error", err)
	}
	return res, done
}

// before is the record of a step that is about to be done.
func (k *Keeper) before(ctx context.Context, q terms.Question, d terms.Decision) (Step, error) {
	o := d.Obligations.Undo
	s := Step{Call: q.Call.ID, N: k.number(q.Call.ID), Principal: q.Call.Principal.ID,
		Tool: q.Call.Tool.Name, Node: q.Op.NodeName(), Made: k.Now(),
		MaxBytes: o.MaxBytes}
	s.Expires = s.Made.Add(time.Duration(o.Days) * 24 * time.Hour)
	about := ""
	switch {
	case q.Cmd != nil && len(q.Cmd.Calls) == 1:
		argv := q.Cmd.Calls[0].Argv
		s.Did, s.Back = strings.Join(reverse.Words(argv), " "), reverse.Command(argv, true)
		about = reverse.About(argv)
	case q.Cmd != nil:
		s.Did = q.Cmd.Rendered
		s.Back = reverse.Way{None: "several commands at once have no reverse that is known"}
	default:
		s.Did, about, s.Back = ofFile(q)
	}
	if len(d.Obligations.Snapshot.VMIDs) > 0 { // a snapshot is a way back that needs no other
		s.Back = reverse.Way{Rollback: d.Obligations.Snapshot.VMIDs}
	}
	if s.Back.None != "" || s.Back.Rollback != nil || about == "" {
		return s, nil
	}
	was, err := k.look(ctx, s.Node, about, o.MaxBytes)
	if err != nil {
		return s, err
	}
	s.Before, s.Mode, s.After = was, was.Mode, hoped(q, was)
	switch f := q.Facts.File; {
	case f != nil && f.Exists == (was.Status == absent): // Back is for what was looked up
		err = errors.New("the file was made or removed since this was decided")
	case s.Back.Config && was.Status == absent:
		err = errors.New("the guest is not there")
	case s.Back.Config:
		s.Back = reverse.Way{}
		s.Back.Argv, err = reverse.Config(q.Cmd.Calls[0].Argv, was.Values)
	case s.Back.File != "" && was.Status == large:
		err = fmt.Errorf("%s is larger than the %d bytes that the site lets be kept", s.Back.File,
			o.MaxBytes)
	case s.Back.File == "":
		s.Before.Data = nil
	}
	s.Before.Values = nil
	return s, err
}

// hoped returns how an operation leaves what it changes, where it succeeds and that can be told
// before, else nothing. A call whose outcome nobody knows is undone where this is what is there.
func hoped(q terms.Question, was State) State {
	will := State{About: was.About, Config: was.Config}
	switch op := q.Op.(type) {
	case abi.SFTPWrite:
		data, err := op.Data.Bytes()
		if err != nil {
			return State{}
		}
		will.Status = digest(data)
	case abi.SFTPPut:
		will.Status = q.Call.Files[op.Local]
	case abi.SFTPRemove:
		will.Status = absent
	default:
		if q.Cmd == nil {
			return State{}
		}
		will.Status = reverse.Leaves(q.Cmd.Calls[0].Argv, was.Status)
	}
	if will.Status == "" || will.same(was) {
		return State{}
	}
	return will
}

// ofFile says what an operation does to a file, which file, and what takes it back.
func ofFile(q terms.Question) (did, about string, back reverse.Way) {
	action, path := "write", ""
	switch op := q.Op.(type) {
	case abi.SFTPWrite:
		path = op.Path
	case abi.SFTPPut:
		action, path = "upload "+op.Local+" to", op.Path
	case abi.SFTPRemove:
		action, path = "remove", op.Path
	}
	exists := q.Facts.File != nil && q.Facts.File.Exists
	return action + " " + path, "file:" + path, reverse.File(action, path, exists, true)
}

func (k *Keeper) number(call string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.steps == nil {
		k.steps = map[string]int{}
	}
	k.steps[call]++
	return k.steps[call]
}

// look asks a node, as the host, how something is.
func (k *Keeper) look(ctx context.Context, node, about string, most int64) (s State, err error) {
	kind, name, _ := strings.Cut(about, ":")
	a := k.Call(ctx, lookName, map[string]any{"node": node, kind: name, "max_bytes": most})
	if a.Err != nil {
		return s, a.Err
	}
	err = json.Unmarshal(a.Output.JSON, &s)
	s.About = about
	return s, err
}

// Targets returns what undoing a call acts on: what the call did, as far as there is a record. Of a
// call of another principal nothing is told, as of one that nobody made.
func Targets(ctx context.Context, b Book, who, call string) (t terms.Targets, err error) {
	steps, err := b.Steps(ctx, call)
	if err != nil {
		return t, err
	}
	snapshots, err := b.Snapshots(ctx)
	for _, s := range snapshots {
		if s.Call == call && s.Principal == who {
			t.Nodes, t.VMIDs = append(t.Nodes, s.Node), append(t.VMIDs, s.VMID)
		}
	}
	for _, s := range steps {
		if s.Principal != who {
			continue
		}
		t.Nodes = append(t.Nodes, s.Node)
		kind, name, _ := strings.Cut(s.Before.About, ":")
		switch kind {
		case "guest":
			t.VMIDs = append(t.VMIDs, name)
		case "unit":
			t.Services = append(t.Services, name)
		case "file":
			t.Paths = append(t.Paths, name)
		}
	}
	for _, list := range []*[]string{&t.Nodes, &t.VMIDs, &t.Services, &t.Paths} {
		slices.Sort(*list)
		*list = append([]string{}, slices.Compact(*list)...)
	}
	t.Hosts, t.GuestPaths, t.LocalPaths = []string{}, []string{}, []string{}
	return t, err
}
