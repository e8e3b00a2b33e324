package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/host/cluster"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/plugin"
	"github.com/caponier-mcp/caponier/host/policy/can"
	"github.com/caponier-mcp/caponier/host/policy/load"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/spf13/cobra"
)

// canFlags are those of policy can.
type canFlags struct {
	site, diff, auth, list, at string
	guests                     []string
}

func policyCan(g *global) *cobra.Command {
	var o canFlags
	cmd := &cobra.Command{
		Use:   "can [PRINCIPAL] [TOOL] [TARGET]",
		Short: "Say what a principal may do, by asking the rules about each call there could be",
		Long: "Ask the rules about each call of each tool (or TOOL, or \"*\") on each node and " +
			"guest (or TARGET, a node or the number of a guest), as PRINCIPAL would make it. " +
			"No node is reached: what the cluster says of guests is given by --guests and " +
			"--guest, and without them the guests are those that the site names by number, one " +
			"for each tag, pool and node that it protects or raises, and one that it does not " +
			"name. A guest is taken for one that Proxmox does not protect, unless " +
			"protection=on says so.\n\nExit codes: 0; 3 when TOOL is named and no call of it " +
			"would be allowed. With --diff: 0 when nothing changes, 1 when something is only " +
			"taken, 3 when something is granted.",
		Args: cobra.MaximumNArgs(3),
		RunE: g.with(func(v *verb, c *config.Config) error { return v.can(c, o) }),
	}
	f := cmd.Flags()
	f.StringVar(&o.site, "site", "", "the site's `DIR` (default from the configuration)")
	f.StringVar(&o.diff, "diff", "", "say what the site in this `DIR` would grant and take; "+
		"without PRINCIPAL for everybody that either site lists")
	f.StringVar(&o.auth, "auth", "", "how the principal proved who it is: config, token or oidc "+
		"(default: each way that the site lists)")
	f.StringVar(&o.list, "guests", "",
		"a `FILE` with what pvesh get /cluster/resources --output-format json says")
	f.StringArrayVar(&o.guests, "guest", nil, "a guest and what its cluster says of it, such as "+
		"`105:tags=prod;web,name=db-1,pool=shop,node=pve1`")
	f.StringVar(&o.at, "at", "", "the `TIME` of the calls, as 2026-11-23T14:00:00Z (default: now)")
	return cmd
}

func (v *verb) can(c *config.Config, o canFlags) error {
	lock, err := plugin.Load(c.Plugin.Lock)
	if err != nil {
		return usage(err)
	}
	hidden, err := hiddenReason(c, lock)
	if err != nil {
		return err
	}
	w := can.World{Tools: lock.Tools(), Nodes: c.Remote.Known(), Time: time.Now()}
	if o.at != "" {
		if w.Time, err = time.Parse(time.RFC3339, o.at); err != nil {
			return usage(fmt.Errorf("--at: %w", err))
		}
	}
	dir, err := v.site(o.site)
	if err != nil {
		return err
	}
	inv := load.Inventory{Tools: w.Tools, Nodes: w.Nodes}
	sites, dirs := []*load.Candidate{}, []string{dir}
	if o.diff != "" {
		dirs = append(dirs, o.diff)
	}
	for _, d := range dirs {
		site, err := load.FromFolder(v.ctx, d, inv)
		if err != nil {
			return err
		}
		sites = append(sites, site)
	}
	if err := v.narrow(&w, o, sites, hidden); err != nil {
		return usage(err)
	}
	cells, err := can.Of(v.ctx, sites[0].Rules, w)
	if err != nil {
		return err
	}
	if o.diff != "" {
		return v.canDiff(v.ctx, cells, sites[1], w)
	}
	none := !slices.ContainsFunc(cells, func(c can.Cell) bool { return c.Can != can.No })
	return v.verdict(none && len(v.args) > 1, exitRefused, cells, func(out io.Writer) {
		can.Print(out, cells)
	})
}

func (v *verb) canDiff(ctx context.Context, was []can.Cell, next *load.Candidate,
	w can.World) error {
	now, err := can.Of(ctx, next.Rules, w)
	if err != nil {
		return err
	}
	changes, err := can.Diff(was, now)
	if err != nil {
		return err
	}
	code := exitDone
	for _, c := range changes {
		if c.Grants {
			code = exitRefused
		} else if c.Takes && code == exitDone {
			code = exitFailed
		}
	}
	return v.verdict(code != exitDone, code, append([]can.Change{}, changes...),
		func(out io.Writer) { can.PrintDiff(out, changes, len(was)) })
}

// narrow chooses what is asked about: by the arguments and the flags.
func (v *verb) narrow(w *can.World, o canFlags, sites []*load.Candidate,
	hidden func(*terms.Tool) string) (err error) {
	who, tool, target := "", "*", ""
	for i, to := range []*string{&who, &tool, &target} {
		if i < len(v.args) {
			*to = v.args[i]
		}
	}
	if who == "" && o.diff == "" {
		return fmt.Errorf("name a principal of %s", namesOf(sites))
	}
	w.Who = slices.DeleteFunc(can.Everybody(sites...), func(p can.Who) bool {
		return who != "" && p.ID != who || o.auth != "" && p.Auth != o.auth
	})
	if len(w.Who) == 0 {
		return fmt.Errorf("the site lists no principal %q with that way of authentication; "+
			"it has %s", who, namesOf(sites))
	}
	if tool != "*" {
		w.Tools = slices.DeleteFunc(slices.Clone(w.Tools), func(t *terms.Tool) bool {
			return t.Name != tool
		})
		if len(w.Tools) == 0 {
			return fmt.Errorf("the lock has no tool %q; `caponier tools` lists them", tool)
		}
	}
	all := w.Tools
	w.Tools = slices.DeleteFunc(slices.Clone(all), func(t *terms.Tool) bool {
		return hidden(t) != ""
	})
	if len(w.Tools) == 0 {
		return fmt.Errorf("%s is not offered by this host: it %s", tool, hidden(all[0]))
	}
	if w.Guests, err = o.facts(sites); err != nil || target == "" {
		return err
	}
	if guestForm.MatchString(target) {
		w.Tools = slices.DeleteFunc(slices.Clone(w.Tools), func(t *terms.Tool) bool {
			return !slices.Contains(t.TargetKinds, "vmids")
		})
		g, known := w.Guests[target]
		if !known {
			g = terms.Guest{Kind: "lxc", Status: "running", Tags: []string{}}
		}
		w.Guests = map[string]terms.Guest{target: g}
		return nil
	}
	if !slices.ContainsFunc(w.Nodes, func(n terms.Node) bool { return n.Name == target }) {
		return fmt.Errorf("%q is neither the number of a guest nor a node of the configuration",
			target)
	}
	w.On = []string{target}
	return nil
}

func namesOf(sites []*load.Candidate) string {
	var names []string
	for _, w := range can.Everybody(sites...) {
		names = append(names, w.ID)
	}
	return strings.Join(slices.Compact(names), ", ")
}

var guestForm = regexp.MustCompile(`^[1-9][0-9]{2,8}$`)

// facts returns the guests that are asked about.
func (o canFlags) facts(sites []*load.Candidate) (map[string]terms.Guest, error) {
	guests := map[string]terms.Guest{}
	if o.list == "" {
		named, err := can.Named(sites...)
		if err != nil && len(o.guests) == 0 {
			return nil, err
		}
		guests = named
	} else {
		data, err := os.ReadFile(o.list)
		if err != nil {
			return nil, err
		}
		list, err := cluster.Read(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.list, err)
		}
		for _, g := range list.Guests {
			guests[g.VMID] = terms.Guest{Name: g.Name, Kind: g.Kind, Node: g.Node, Status: g.Status,
				Tags: g.Tags, Pool: g.Pool, Template: g.Template, HA: g.HA}
		}
	}
	for _, text := range o.guests {
		id, rest, _ := strings.Cut(text, ":")
		if !guestForm.MatchString(id) {
			return nil, fmt.Errorf("--guest %s: begins with no number of a guest", text)
		}
		g := terms.Guest{Kind: "lxc", Status: "running", Tags: []string{}}
		for _, pair := range strings.FieldsFunc(rest, func(r rune) bool { return r == ',' }) {
			key, value, _ := strings.Cut(pair, "=")
			switch key {
			case "tags":
				g.Tags = strings.Split(value, ";")
			case "name":
				g.Name = value
			case "pool":
				g.Pool = value
			case "node":
				g.Node = value
			case "protection":
				g.Protection = value
			default:
				return nil, fmt.Errorf("--guest %s: %q is none of tags, name, pool, node, "+
					"protection", text, key)
			}
		}
		guests[id] = g
	}
	return guests, nil
}
