package pve

import (
	"fmt"
	"slices"
	"time"

	"github.com/caponier-mcp/caponier/sdk"
)

// Found is a guest with the node that its commands run on.
type Found struct {
	Node
	Guest
}

// Current is what a guest is doing right now.
type Current struct {
	VMID   Int    `json:"vmid"`
	Status string `json:"status" need:"true"`
	// of virtual machines: paused, suspended … while Status is running
	QMPStatus string `json:"qmpstatus"`
	Name      string `json:"name"`
	Lock      string `json:"lock"`
	Tags      string `json:"tags"`
	Template  Int    `json:"template"`
	HA        struct {
		Managed Int `json:"managed"`
	} `json:"ha"`
	CPU     Float `json:"cpu"`
	CPUs    Float `json:"cpus"`
	Mem     Int   `json:"mem"`
	MaxMem  Int   `json:"maxmem"`
	Disk    Int   `json:"disk"`
	MaxDisk Int   `json:"maxdisk"`
	NetIn   Int   `json:"netin"`
	NetOut  Int   `json:"netout"`
	Uptime  Int   `json:"uptime"`
}

// Find asks the cluster which node a guest is on. Node is the name that the caller gave, or empty
// for the default node. Find returns a guest of another node only if node is empty and the
// inventory has both nodes in one cluster, because policy allows no other call. Otherwise
// the error is an *sdk.Error with the code not_found or on_other_node.
func Find(c *sdk.Call, node string, vmid int) (Found, error) {
	from := On(c, node)
	doing := fmt.Sprintf("finding guest %d from %s", vmid, from.Name)
	all, err := from.Guests()
	if err != nil {
		return Found{}, err
	}
	i := slices.IndexFunc(all, func(g Guest) bool { return int(g.VMID) == vmid })
	if i < 0 {
		return Found{}, &sdk.Error{
			Code:       "not_found",
			Message:    doing + ": there is no such guest in its cluster",
			Suggestion: "List what there is with list_guests.",
		}
	}
	g := all[i]
	if g.Node == from.Name {
		return Found{from, g}, nil
	}
	other := &sdk.Error{
		Code:       "on_other_node",
		Message:    fmt.Sprintf("%s: it is on node %s", doing, g.Node),
		Suggestion: fmt.Sprintf("Call again with \"node\": %q.", g.Node),
	}
	here, there := cluster(c, from.Name), cluster(c, g.Node)
	if there == nil {
		other.Suggestion = fmt.Sprintf(
			"Node %s is not in the inventory: add it to [[remote.nodes]] in the configuration.",
			g.Node,
		)
		return Found{}, other
	}
	if node != "" || *there == "" || *there != *here {
		return Found{}, other
	}
	return Found{Node{c, g.Node}, g}, nil
}

func cluster(c *sdk.Call, name string) *string {
	for _, n := range c.Nodes {
		if n.Name == name {
			return &n.Cluster
		}
	}
	return nil
}

// Tool is the program for guests of this type: pct or qm.
func (f Found) Tool() string {
	if f.Type == "qemu" {
		return "qm"
	}
	return "pct"
}

// Path is the guest's path in the API. Every part of it was read from Proxmox itself and is checked
// once more.
func (f Found) Path(rest string) (string, error) {
	if !ValidNode(f.Guest.Node) || f.Type != "lxc" && f.Type != "qemu" || f.VMID < 100 {
		return "", &sdk.Error{
			Code: "failed",
			Message: fmt.Sprintf(
				"the cluster names guest %d of type %q on node %q, which no path can hold",
				f.VMID,
				f.Type,
				f.Guest.Node,
			),
			Suggestion: "Check the cluster's resources by hand.",
		}
	}
	return fmt.Sprintf("/nodes/%s/%s/%d%s", f.Guest.Node, f.Type, f.VMID, rest), nil
}

// Get asks the API for something of the guest.
func (f Found) Get(into any, rest string, options ...string) error {
	path, err := f.Path(rest)
	if err != nil {
		return err
	}
	return f.JSON(into, append([]string{"get", path}, options...)...)
}

// Current reads what the guest is doing right now.
func (f Found) Current() (Current, error) {
	var cur Current
	err := f.Get(&cur, "/status/current")
	if err == nil && cur.VMID != 0 && cur.VMID != f.VMID {
		err = contradiction(fmt.Sprintf("asking for guest %d", f.VMID),
			fmt.Errorf("it is about guest %d", cur.VMID))
	}
	return cur, err
}

// Status is Current for [Change].
func (f Found) Status() (Seen, error) {
	cur, err := f.Current()
	return Seen{cur.Status, int64(cur.Uptime)}, err
}

// Change brings the guest to a status with one lifecycle command.
func (f Found) Change(want string, again bool, limit time.Duration, verb string,
	options ...string) (Changed, error) {
	argv := append([]string{f.Tool(), verb, ID(int(f.VMID))}, options...)
	return Change{
		Node:    f.Node,
		VMID:    int(f.VMID),
		Kind:    f.Type,
		Want:    want,
		Again:   again,
		Argv:    argv,
		Timeout: limit,
		Status:  f.Status,
	}.Do("")
}

// String names the guest for people.
func (f Found) String() string {
	return fmt.Sprintf("%s %d on %s", TypeName(f.Type), f.VMID, f.Guest.Node)
}
