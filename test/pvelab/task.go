package pvelab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// worker runs fn as a task, as fork_worker does on the command line: it waits for the end, and what
// fn prints goes to the caller's output and into the log. The result is the UPID, also beside a
// *taskFailed.
func (c *call) worker(ctx context.Context, typ, id string,
	fn func(out io.Writer) error) (any, error) {
	var upid string
	err := c.lab.db.update(func(s *State) error {
		t := newTask(s, c.node, typ, id, now())
		upid = t.UPID
		return nil
	})
	if err != nil {
		return nil, err
	}
	var log bytes.Buffer
	code, msg := 0, "OK"
	if err := fn(io.MultiWriter(c.p.out, &log)); err != nil {
		var f *fail
		if code, msg = 255, strings.TrimSuffix(err.Error(), "\n"); errors.As(err, &f) {
			code = f.code
		}
	}
	last := "TASK OK"
	if msg != "OK" {
		last = "\nTASK ERROR: " + msg
	}
	err = c.lab.db.update(func(s *State) error {
		for _, t := range s.Tasks {
			if t.UPID == upid {
				t.Status, t.End = msg, now()
				t.Log = strings.Split(log.String()+last, "\n")
			}
		}
		return nil
	})
	if err != nil {
		return upid, err
	}
	if msg != "OK" {
		return upid, &taskFailed{code, upid, msg}
	}
	return upid, nil
}

func newTask(s *State, node, typ, id string, at int64) *Task {
	s.NextPID++
	start := int64(0)
	if n := s.node(node); n != nil {
		start = (at-n.Booted)*100 + int64(s.NextPID%100)
	}
	t := &Task{
		Node:   node,
		Type:   typ,
		ID:     id,
		User:   "root@pam",
		PID:    s.NextPID,
		PStart: start,
		Start:  at,
	}
	t.UPID = fmt.Sprintf("UPID:%s:%08X:%08X:%08X:%s:%s:%s:", node, t.PID, t.PStart, t.Start, typ,
		id, t.User)
	s.Tasks = append(s.Tasks, t)
	return t
}

func (t *Task) row(inList bool) map[string]any {
	m := map[string]any{
		"upid":      t.UPID,
		"node":      t.Node,
		"pid":       t.PID,
		"pstart":    t.PStart,
		"starttime": t.Start,
		"type":      t.Type,
		"id":        t.ID,
		"user":      t.User,
	}
	switch {
	case inList && t.Status != "":
		m["endtime"], m["status"] = t.End, t.Status
	case !inList && t.Status != "":
		m["status"], m["exitstatus"] = "stopped", t.Status
	case !inList:
		m["status"] = "running"
	}
	return m
}

// task finds the task of a UPID parameter.
func (c *call) task() (t Task, err error) {
	if !upidRE.MatchString(c.vals["upid"]) {
		return t, verification(map[string]string{"upid": "unable to parse worker upid"})
	}
	err = die(2, "no such task")
	verr := c.lab.db.view(func(s *State) {
		for _, x := range s.Tasks {
			if x.UPID == c.vals["upid"] {
				t, err = *x, nil
			}
		}
	})
	if verr != nil {
		return t, verr
	}
	return t, err
}

func taskStatus(_ context.Context, c *call) (any, error) {
	t, err := c.task()
	return t.row(false), err
}

func taskLog(_ context.Context, c *call) (any, error) {
	t, err := c.task()
	if err != nil {
		return nil, err
	}
	out, start, limit := []any{}, c.num("start", 0), c.num("limit", 50)
	for i, line := range t.Log {
		if i >= start && (limit == 0 || i < start+limit) {
			out = append(out, map[string]any{"n": i + 1, "t": line})
		}
	}
	return out, nil
}

func nodeTasks(_ context.Context, c *call) (any, error) {
	out := []any{}
	skip, limit := c.num("start", 0), c.num("limit", 50)
	err := c.lab.db.view(func(s *State) {
		for i := len(s.Tasks) - 1; i >= 0 && len(out) < limit; i-- {
			t := s.Tasks[i]
			running := t.Status == ""
			bad := !running && t.Status != "OK" && !strings.HasPrefix(t.Status, "WARNINGS: ")
			switch src := c.vals["source"]; {
			case t.Node != c.node,
				running && (src == "" || src == "archive"), !running && src == "active",
				c.on("errors") && !bad,
				c.vals["vmid"] != "" && t.ID != strconv.Itoa(c.vmid()),
				c.vals["typefilter"] != "" && t.Type != c.vals["typefilter"],
				c.vals["userfilter"] != "" && !strings.Contains(t.User, c.vals["userfilter"]),
				t.Start < int64(c.num("since", 0)), c.vals["until"] != "" &&
					t.Start > int64(c.num("until", 0)):
				continue
			}
			if f := splitList(c.vals["statusfilter"]); len(f) > 0 &&
				!slices.Contains(f, map[bool]string{true: "error", false: "ok"}[bad]) {
				continue
			}
			if skip--; skip >= 0 {
				continue
			}
			out = append(out, t.row(true))
		}
	})
	return out, err
}

func clusterTasks(_ context.Context, c *call) (any, error) {
	out := []any{}
	err := c.lab.db.view(func(s *State) {
		for i := len(s.Tasks) - 1; i >= 0 && len(out) < 25; i-- {
			row := s.Tasks[i].row(true)
			row["saved"] = "1" // the real daemon mixes numbers and strings here
			out = append(out, row)
		}
	})
	return out, err
}

func stopTask(_ context.Context, c *call) (any, error) {
	_, err := c.task()
	return nil, err
}

// guest looks a guest of this node up and answers a copy; the error's text is the same for one on
// another node.
func (c *call) guest(typ string, code int) (*Guest, error) {
	var g *Guest
	err := c.lab.db.view(func(s *State) {
		if x := s.local(c.node, typ, c.vmid()); x != nil {
			cp := *x
			cp.Config = maps.Clone(x.Config)
			cp.Snapshots = append([]*Snapshot(nil), x.Snapshots...)
			g = &cp
		}
	})
	if err != nil {
		return nil, err
	}
	if g == nil {
		return nil, die(code, "Configuration file 'nodes/%s/%s/%d.conf' does not exist", c.node,
			confDir(typ), c.vmid())
	}
	return g, nil
}

// change edits a guest's stored state; without quorum /etc/pve cannot be written.
func (c *call) change(typ string, config bool, fn func(*State, *Guest)) error {
	return c.lab.db.update(func(s *State) error {
		g := s.local(c.node, typ, c.vmid())
		if g == nil {
			return die(255, "Configuration file of %d does not exist", c.vmid())
		}
		if config && !s.quorate() {
			return die(255,
				"unable to open file '/etc/pve/nodes/%s/%s/%d.conf.tmp.%d' - Permission denied",
				c.node, confDir(typ), g.VMID, s.NextPID)
		}
		fn(s, g)
		return nil
	})
}

func (c *call) quorum() error {
	ok := false
	if err := c.lab.db.view(func(s *State) { ok = s.quorate() }); err != nil {
		return err
	}
	if !ok {
		return die(255, "cluster not ready - no quorum?")
	}
	return nil
}

func (g *Guest) locked(skip bool) error {
	if l := g.Config["lock"]; l != "" && !skip {
		what := map[string]string{"lxc": "CT", "qemu": "VM"}[g.Type]
		return die(255, "%s is locked (%s)", what, l)
	}
	return nil
}
