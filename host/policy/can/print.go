package can

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Print writes cells for people: for each tool one line for each answer, with what it is for.
func Print(w io.Writer, cells []Cell) {
	var who Who
	for i := 0; i < len(cells); {
		c := cells[i]
		if c.Who != who {
			who = c.Who
			fmt.Fprintf(w, "%s:\n", who)
		}
		end := i
		for end < len(cells) && cells[end].Who == c.Who && cells[end].Tool == c.Tool {
			end++
		}
		for _, g := range grouped(cells[i:end]) {
			fmt.Fprintf(w, "  %-36s %-6s %-8s %s%s\n", c.Tool, g.Tier, g.Can, g.on(), g.why())
		}
		i = end
	}
}

func (w Who) String() string {
	if w.Role != "" {
		return fmt.Sprintf("%s with the claimed role %s (%s)", w.ID, w.Role, w.Auth)
	}
	return fmt.Sprintf("%s (%s)", w.ID, w.Auth)
}

// group is a set of cells with one answer.
type group struct {
	Cell
	nodes  []string
	guests []string
}

// grouped puts cells of one tool together whose answers are alike: guests of a node, then nodes.
func grouped(cells []Cell) (all []group) {
	same := func(a, b Cell) bool {
		return a.Node == b.Node && a.Can == b.Can && a.Tier == b.Tier &&
			slices.Equal(a.Failed, b.Failed) && slices.Equal(a.Cannot, b.Cannot) && a.Held == b.Held
	}
	var onNode []group
	for _, c := range cells {
		at := slices.IndexFunc(onNode, func(g group) bool { return same(g.Cell, c) })
		if at < 0 {
			at = len(onNode)
			onNode = append(onNode, group{Cell: c, nodes: []string{c.Node}})
		}
		onNode[at].guests = append(onNode[at].guests, c.guest())
	}
	for _, g := range onNode {
		at := slices.IndexFunc(all, func(o group) bool {
			x := g.Cell
			x.Node = o.Node
			return same(o.Cell, x) && slices.Equal(o.guests, g.guests)
		})
		if at < 0 {
			all = append(all, g)
		} else {
			all[at].nodes = append(all[at].nodes, g.Node)
		}
	}
	return all
}

// guest is the number of the guest, with what it is known by.
func (c Cell) guest() string {
	if c.Like == "" {
		return c.Guest
	}
	return c.Guest + " (" + c.Like + ")"
}

func (g group) on() string {
	guests, nodes := strings.Join(g.guests, ", "), strings.Join(g.nodes, ", ")
	if guests != "" {
		guests = "guest " + guests
	}
	if nodes != "" {
		nodes = "on " + nodes
	}
	return cmp.Or(strings.TrimSpace(guests+" "+nodes), "-")
}

// why says what is in the way, or still decides.
func (g group) why() (text string) {
	for _, r := range g.Why {
		if g.Can == No && r.ID != "target" && r.ID != "confirmation" {
			text += fmt.Sprintf("\n      %s: %s", r.ID, r.Msg)
		}
	}
	if len(g.Needs) > 0 {
		text += "\n      its " + strings.Join(g.Needs, ", ") + " decide too"
	}
	if g.Held != "" {
		text += "\n      held to " + g.Held
	}
	if g.Can != No && len(g.Cannot) > 0 {
		text += "\n      refused in it: " + strings.Join(g.Cannot, ", ")
	}
	return text
}

// PrintDiff writes changes for people, of so many calls that were asked about.
func PrintDiff(w io.Writer, changes []Change, asked int) {
	grants, takes := 0, 0
	for _, c := range changes {
		sign := "~"
		switch {
		case c.Grants && c.Takes:
			sign = "±"
		case c.Grants:
			sign = "+"
		case c.Takes:
			sign = "-"
		}
		if c.Grants {
			grants++
		}
		if c.Takes {
			takes++
		}
		on := group{Cell: c.Now, nodes: []string{c.Now.Node}, guests: []string{c.Now.guest()}}
		fmt.Fprintf(w, "%s %s: %s %s: %s %s, now %s %s%s\n", sign, c.Now.Who, c.Now.Tool, on.on(),
			c.Was.Can, c.Was.Tier, c.Now.Can, c.Now.Tier, on.why())
		if c.Was.Held != c.Now.Held && c.Was.Held != "" {
			fmt.Fprintf(w, "      held before to %s\n", c.Was.Held)
		}
		if c.Was.Can != No && len(c.Was.Cannot) > 0 {
			fmt.Fprintf(w, "      refused before: %s\n", strings.Join(c.Was.Cannot, ", "))
		}
	}
	fmt.Fprintf(w, "%d calls asked about: %d change, %d get further, %d less far\n", asked,
		len(changes), grants, takes)
}
