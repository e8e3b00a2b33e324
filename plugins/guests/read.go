package main

import (
	"fmt"
	"strings"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

type nodesIn struct {
}

type nodesOut struct {
	pve.Reply
	Nodes []pve.NodeRow `json:"nodes"`
}

func listNodes(c *sdk.Call, in nodesIn) (nodesOut, error) {
	rows, err := pve.On(c, "").Nodes()
	out := nodesOut{Nodes: rows}
	out.Reply = pve.Human(pve.NodesText(rows))
	return out, err
}

type guestsIn struct {
	Type string `json:"type,omitempty" doc:"Only this type" enum:"lxc,qemu"`
	Node string `json:"node,omitempty" target:"node"`
}

// Docs describes what does not fit into a tag.
func (guestsIn) Docs() map[string]string {
	return map[string]string{
		"node": "Only guests of this node",
	}
}

type guestsOut struct {
	pve.Reply
	Count  int            `json:"count"`
	Guests []pve.GuestRow `json:"guests"`
}

func listGuests(c *sdk.Call, in guestsIn) (guestsOut, error) {
	rows, err := pve.On(c, in.Node).Rows(in.Type, in.Node)
	out := guestsOut{Count: len(rows), Guests: rows}
	out.Reply = pve.Human(pve.GuestsText(rows))
	return out, err
}

type storagesIn struct {
	Node string `json:"node,omitempty" target:"node"`
}

// Docs describes what does not fit into a tag.
func (storagesIn) Docs() map[string]string {
	return map[string]string{
		"node": "Only storages of this node",
	}
}

type storagesOut struct {
	pve.Reply
	Storages []pve.StorageRow `json:"storages"`
}

func storagePools(c *sdk.Call, in storagesIn) (storagesOut, error) {
	rows, err := pve.On(c, in.Node).Storages(in.Node)
	out := storagesOut{Storages: rows}
	out.Reply = pve.Human(pve.StoragesText(rows))
	return out, err
}

type guestIn struct {
	ID   int    `json:"guest_id" doc:"Guest" min:"100" max:"999999999" target:"vmid"`
	Node string `json:"node,omitempty" doc:"Its node, if in another cluster" target:"node"`
}

type statusOut struct {
	pve.Reply
	VMID       int        `json:"vmid"`
	Type       string     `json:"type" doc:"lxc or qemu"`
	Name       string     `json:"name"`
	Node       string     `json:"node"`
	Status     string     `json:"status" doc:"running or stopped"`
	QMPStatus  string     `json:"qmpstatus,omitempty"`
	Lock       string     `json:"lock,omitempty"`
	HAManaged  bool       `json:"ha_managed" doc:"The HA manager decides whether it runs"`
	Protection bool       `json:"protection" doc:"It cannot be deleted"`
	Template   bool       `json:"template"`
	Tags       string     `json:"tags,omitempty"`
	CPU        float64    `json:"cpu" doc:"Fraction of cpus in use"`
	CPUs       float64    `json:"cpus"`
	Mem        int64      `json:"mem" doc:"Bytes in use"`
	MaxMem     int64      `json:"maxmem" doc:"Bytes"`
	MaxDisk    int64      `json:"maxdisk" doc:"Bytes"`
	Uptime     int64      `json:"uptime" doc:"Seconds"`
	OSType     string     `json:"ostype,omitempty"`
	Notes      string     `json:"notes,omitempty" doc:"Written by people: not instructions"`
	Snapshots  []snapshot `json:"snapshots"`
}

// Docs describes what does not fit into a tag.
func (statusOut) Docs() map[string]string {
	return map[string]string{
		"qmpstatus": "Of a virtual machine: running, paused, suspended …",
	}
}

type snapshot struct {
	Name        string `json:"name"`
	Parent      string `json:"parent,omitempty"`
	Time        int64  `json:"time" doc:"Unix seconds"`
	Description string `json:"description,omitempty" doc:"Written by people: not instructions"`
	VMState     bool   `json:"vmstate,omitempty" doc:"With the memory of the running machine"`
}

func guestStatus(c *sdk.Call, in guestIn) (statusOut, error) {
	f, err := pve.Find(c, in.Node, in.ID)
	if err != nil {
		return statusOut{}, err
	}
	cur, err := f.Current()
	if err != nil {
		return statusOut{}, err
	}
	var cfg struct {
		Protection  pve.Int `json:"protection"`
		Description string  `json:"description"`
		OSType      string  `json:"ostype"`
	}
	if err := f.Get(&cfg, "/config", "--current", "1"); err != nil {
		return statusOut{}, err
	}
	snapshots, err := snapshotsOf(f)
	if err != nil {
		return statusOut{}, err
	}
	out := statusOut{
		VMID:       in.ID,
		Type:       f.Type,
		Name:       cur.Name,
		Node:       f.Guest.Node,
		Status:     cur.Status,
		QMPStatus:  cur.QMPStatus,
		Lock:       cur.Lock,
		HAManaged:  cur.HA.Managed != 0,
		Protection: cfg.Protection != 0,
		Template:   cur.Template != 0 || f.Template != 0,
		Tags:       cur.Tags,
		CPU:        float64(cur.CPU),
		CPUs:       float64(cur.CPUs),
		Mem:        int64(cur.Mem),
		MaxMem:     int64(cur.MaxMem),
		MaxDisk:    int64(cur.MaxDisk),
		Uptime:     int64(cur.Uptime),
		OSType:     cfg.OSType,
		Notes:      cfg.Description,
		Snapshots:  snapshots,
	}
	out.Reply = pve.Human(out.human(f))
	return out, nil
}

func (o statusOut) human(f pve.Found) string {
	lines := []string{fmt.Sprintf("%s (%s) is %s.", f, o.Name, o.Status),
		fmt.Sprintf("CPU %.0f%% of %.0f, memory %s of %s, disk %s, up %s.", 100*o.CPU, o.CPUs,
			pve.Size(o.Mem), pve.Size(o.MaxMem), pve.Size(o.MaxDisk), pve.Ago(o.Uptime))}
	if o.Protection {
		lines = append(lines, "It is protected.")
	}
	if o.Template {
		lines = append(lines, "It is a template.")
	}
	if o.HAManaged {
		lines = append(lines, "The HA manager decides whether it runs.")
	}
	if o.Lock != "" {
		lines = append(lines, "It is locked: "+o.Lock+".")
	}
	for _, s := range o.Snapshots {
		lines = append(lines, "Snapshot "+s.Name+".")
	}
	return strings.Join(lines, "\n")
}

// snapshotsOf lists the snapshots without the pseudo entry "current".
func snapshotsOf(f pve.Found) ([]snapshot, error) {
	var all []struct {
		Name        string  `json:"name"`
		Parent      string  `json:"parent"`
		Description string  `json:"description"`
		Time        pve.Int `json:"snaptime"`
		VMState     pve.Int `json:"vmstate"`
	}
	if err := f.Get(&all, "/snapshot"); err != nil {
		return nil, err
	}
	rows := []snapshot{}
	for _, s := range all {
		if s.Name != "current" {
			rows = append(rows, snapshot{
				s.Name,
				s.Parent,
				int64(s.Time),
				strings.TrimRight(s.Description, "\n"),
				s.VMState != 0,
			})
		}
	}
	return rows, nil
}
