// Package can tells what principals may do, by asking the rules about each call that there could
// be.
package can

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/policy"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// maxCells bounds the questions of one report: each costs a decision.
const maxCells = 200_000

// Who is a principal, with one of the ways in which it may have proved who it is.
type Who struct {
	ID   string `json:"principal"`
	Auth string `json:"auth"`
	Role string `json:"role,omitempty"` // that a claim names, of one that no site lists
}

// World is what calls could be about.
type World struct {
	Who    []Who
	Tools  []*terms.Tool
	Nodes  []terms.Node
	On     []string               // names of the nodes that are asked about; nil for all
	Guests map[string]terms.Guest // by VMID; one without a kind may be on any node
	Time   time.Time
}

// How a call would be answered.
const (
	yes      = "yes"
	approval = "approval" // when a person approves it
	argument = "argument" // when the caller itself sets the tool's confirmation argument
	depends  = "depends"  // on targets that are no nodes and guests: see Needs
	No       = "no"
)

// Cell is the answer to one call.
type Cell struct {
	Who
	Tool   string         `json:"tool"`
	Node   string         `json:"node"`  // "" for a call that names none
	Guest  string         `json:"guest"` // "" for a call that names none
	Like   string         `json:"like"`  // what that is known by: its tags, pool, name, node
	Can    string         `json:"can"`   // yes | approval | argument | depends | no
	Tier   string         `json:"tier"`
	Failed []string       `json:"failed"` // ids of the checks that do not hold
	Why    []terms.Reason `json:"why"`
	Needs  []string       `json:"needs"`  // kinds of targets that decide what is left
	By     []string       `json:"by"`     // who may approve it, and on which channels
	Cannot []string       `json:"cannot"` // commands that the tool runs, and would be refused
	Held   string         `json:"held"`   // what else the roles that grant it list, "" for nothing
	Shut   bool           `json:"shut"`   // refused at this time, and not at another
	by     []held
}

// Of asks rules about every call in the world, in the order of principals, tools, nodes, guests.
func Of(ctx context.Context, r *policy.Rules, w World) ([]Cell, error) {
	cells, err := w.cells()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				if err := cells[i].ask(ctx, r, w); err != nil {
					cancel(fmt.Errorf("%s on %s %s: %w", cells[i].Tool, cells[i].Node,
						cells[i].Guest, err))
				}
			}
		})
	}
	for i := range cells {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
	all := make([]Cell, len(cells))
	for i, c := range cells {
		all[i] = c.Cell
	}
	return all, context.Cause(ctx)
}

// asked is a cell with its tool.
type asked struct {
	Cell
	tool *terms.Tool
}

func (w World) cells() (all []asked, err error) {
	guests := slices.SortedFunc(maps.Keys(w.Guests), byNumber)
	tools := slices.SortedFunc(slices.Values(w.Tools), func(a, b *terms.Tool) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	for _, who := range w.Who {
		for _, t := range tools {
			for _, node := range w.nodesOf(t) {
				on := []string{""}
				if takes(t, "vmid") {
					on = guests
				}
				for _, g := range on {
					if !w.there(g, node) {
						continue
					}
					if len(all) == maxCells {
						return nil, fmt.Errorf("there are more than %d calls to ask about: name a "+
							"principal, a tool, or a guest or node", maxCells)
					}
					all = append(all, asked{Cell{Who: who, Tool: t.Name, Node: node, Guest: g,
						Like: like(w.Guests[g])}, t})
				}
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("there is no such call: no tool takes that target")
	}
	return all, nil
}

// there reports whether the guest can be in the cluster of the node. One that is on a node beside
// the inventory can be in any.
func (w World) there(id, node string) bool {
	g := w.Guests[id]
	cluster := func(name string) string {
		for _, n := range w.Nodes {
			if n.Name == name {
				return cmp.Or(n.Cluster, "node "+n.Name)
			}
		}
		return ""
	}
	on := cluster(g.Node)
	return id == "" || node == "" || on == "" || on == cluster(node)
}

func takes(t *terms.Tool, target string) bool {
	return slices.ContainsFunc(t.Params, func(p terms.Param) bool { return p.Target == target })
}

// nodesOf are the nodes that a call of the tool can name: all, or else the default one where it
// acts on a node, as the host adds it.
func (w World) nodesOf(t *terms.Tool) (names []string) {
	acts := slices.ContainsFunc(t.Imports, func(name string) bool {
		op, _ := abi.Lookup(name)
		return op.OnNode
	})
	for _, n := range w.Nodes {
		if (takes(t, "node") || acts && n.Default) &&
			(w.On == nil || slices.Contains(w.On, n.Name)) {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 && !acts && w.On == nil {
		names = []string{""}
	}
	return names
}

// byNumber sorts texts of numbers.
func byNumber(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// ask has the call decided, as it would be if its other arguments were all right.
func (c *asked) ask(ctx context.Context, r *policy.Rules, w World) error {
	p := terms.Principal{ID: c.ID, Auth: c.Auth, Roles: []string{}}
	if c.Role != "" {
		p.Roles = []string{c.Role}
	}
	source := map[string]string{"config": "stdio"}[c.Auth]
	like := terms.Question{ID: "can", Time: w.Time, Call: &terms.Call{ID: "can", Principal: p,
		Source: cmp.Or(source, "http"), Nodes: w.Nodes}}
	like.Facts.Counts = terms.Counts{Calls60s: 1, ToolCalls60s: 1, TargetCalls60s: 1}
	on := terms.Targets{Nodes: []string{}, VMIDs: []string{}, Services: []string{},
		Hosts: []string{}, Paths: []string{}, GuestPaths: []string{}, LocalPaths: []string{}}
	if c.Node != "" {
		on.Nodes = []string{c.Node}
	}
	scalars := map[string]any{}
	if c.Guest != "" {
		on.VMIDs, like.Facts.Guests = []string{c.Guest}, map[string]terms.Guest{}
		if g, known := w.Guests[c.Guest]; known {
			g.Protection = cmp.Or(g.Protection, "off")
			like.Facts.Guests[c.Guest] = g
		}
		number, _ := strconv.ParseInt(c.Guest, 10, 64)
		for _, p := range c.tool.Params {
			if p.Target == "vmid" {
				scalars[p.Name] = number
			}
		}
	}
	q := policy.Supposed(like, c.tool, on)
	q.Call.Args.Scalars = scalars
	d, err := r.Decide(ctx, q)
	if err != nil {
		return err
	}
	var able []string
	err = errors.Join(r.About(ctx, "able", q, &able), r.About(ctx, "held", q, &c.by))
	if err != nil {
		return err
	}
	if c.answer(d, able); c.Can != approval {
		return nil
	}
	if q.Call.Confirmation.State = "argument"; c.tool.Confirm != "" {
		if d, err = r.Decide(ctx, q); err != nil {
			return err
		}
		if d.Allow || len(c.Needs) > 0 && slices.Equal(d.Failed, []string{"target"}) {
			c.Can = argument
			return nil
		}
	}
	o := d.Obligations
	c.By = slices.Concat(o.Channels, o.Approvers)
	if !slices.Contains(o.Channels, "client") && (len(o.Channels) == 0 || len(o.Approvers) == 0) {
		c.refuse("confirmation", "nobody can approve it")
	}
	return nil
}

// answer reads the decision. What only other targets could still decide is left open.
func (c *asked) answer(d terms.Decision, able []string) {
	c.Tier, c.Failed, c.Why, c.Needs = d.Tier.String(), d.Failed, d.Denied, []string{}
	c.Cannot, c.By = []string{}, []string{}
	for _, kind := range c.tool.TargetKinds {
		if kind != "nodes" && kind != "vmids" {
			c.Needs = append(c.Needs, kind)
		}
	}
	runs := 0
	for _, command := range slices.Sorted(slices.Values(c.tool.Commands)) {
		if command != terms.CallersText {
			if runs++; !slices.Contains(able, command) {
				c.Cannot = append(c.Cannot, command)
			}
		}
	}
	left := slices.DeleteFunc(slices.Clone(d.Failed), func(id string) bool {
		return id == "confirmation" || id == "target" && len(c.Needs) > 0
	})
	c.Shut = slices.Equal(left, []string{"hours"})
	if c.Held = ""; c.Shut || len(left) == 0 {
		c.Held = says(c.by)
	}
	switch {
	case len(left) > 0 || len(d.Failed) == 0 && !d.Allow:
		c.Can = No
	case runs > 0 && len(c.Cannot) == runs:
		c.refuse("role", "no command that the tool runs may run here")
	case slices.Contains(d.Failed, "confirmation"), !d.Allow && d.Tier == terms.Red:
		c.Can = approval
	case d.Allow:
		c.Can = yes
	default:
		c.Can = depends
	}
	if c.Can == No {
		c.Needs = []string{}
	}
	slices.Sort(c.Failed)
	if c.Failed == nil {
		c.Failed = []string{}
	}
	if c.Why == nil {
		c.Why = []terms.Reason{}
	}
}

func (c *asked) refuse(id, why string) {
	c.Can, c.Needs = No, []string{}
	if !slices.Contains(c.Failed, id) {
		c.Failed = append(c.Failed, id)
		slices.Sort(c.Failed)
	}
	c.Why = append(c.Why, terms.Reason{ID: id, Msg: why})
}

// Everybody are the principals that the data of these policies list, in every way of proving who
// they are, and somebody of an identity provider for each role that a claim may give.
func Everybody(all ...*load.Candidate) []Who {
	seen := map[Who]bool{}
	for _, c := range all {
		site, _ := c.Data()["site"].(map[string]any)
		principals, _ := site["principals"].(map[string]any)
		for id, entry := range principals {
			e, _ := entry.(map[string]any)
			auths, _ := e["auth"].([]any)
			for _, a := range auths {
				seen[Who{ID: id, Auth: fmt.Sprint(a)}] = true
			}
		}
		roles, _ := site["claimable_roles"].([]any)
		for _, r := range roles {
			seen[Who{ID: "(anybody)", Auth: "oidc", Role: fmt.Sprint(r)}] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b Who) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Auth, b.Auth),
			cmp.Compare(a.Role, b.Role))
	})
}
