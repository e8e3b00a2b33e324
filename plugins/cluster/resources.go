package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

type guestsOut struct {
	pve.Reply
	Count  int            `json:"count"`
	Guests []pve.GuestRow `json:"guests"`
}

func guests(c *sdk.Call, kind string) (guestsOut, error) {
	rows, err := pve.On(c, "").Rows(kind, "")
	out := guestsOut{Count: len(rows), Guests: rows}
	out.Reply = pve.Human(pve.GuestsText(rows))
	return out, err
}

func vms(c *sdk.Call, in allIn) (guestsOut, error) { return guests(c, "qemu") }

// Proxmox has no resources of the type container: they are among those of the type vm.
func containers(c *sdk.Call, in allIn) (guestsOut, error) { return guests(c, "lxc") }

type storageOut struct {
	pve.Reply
	Storages []pve.StorageRow `json:"storages"`
}

func storage(c *sdk.Call, in allIn) (storageOut, error) {
	rows, err := pve.On(c, "").Storages("")
	out := storageOut{Storages: rows}
	out.Reply = pve.Human(pve.StoragesText(rows))
	return out, err
}

type resourcesIn struct {
	Type string `json:"type,omitempty" enum:"vm,container,storage,node,sdn"`
}

// Docs describes what does not fit into a tag.
func (resourcesIn) Docs() map[string]string {
	return map[string]string{
		"type": "vm has containers too; all if absent",
	}
}

type resourcesOut struct {
	pve.Reply
	Count     int        `json:"count"`
	Resources []resource `json:"resources"`
}

// resource is a row of any type; what does not belong to its type is absent.
type resource struct {
	ID      string  `json:"id" doc:"Such as lxc/101, node/pve1 or storage/pve1/local"`
	Type    string  `json:"type" doc:"lxc, qemu, node, storage, sdn, pool or network"`
	Node    string  `json:"node,omitempty"`
	Name    string  `json:"name,omitempty"`
	Status  string  `json:"status,omitempty"`
	VMID    int     `json:"vmid,omitempty"`
	Storage string  `json:"storage,omitempty"`
	Plugin  string  `json:"plugintype,omitempty"`
	Content string  `json:"content,omitempty"`
	Pool    string  `json:"pool,omitempty"`
	Lock    string  `json:"lock,omitempty"`
	Tags    string  `json:"tags,omitempty"`
	HAState string  `json:"hastate,omitempty"`
	CPU     float64 `json:"cpu,omitempty" doc:"Fraction of maxcpu in use"`
	MaxCPU  float64 `json:"maxcpu,omitempty"`
	Mem     int64   `json:"mem,omitempty" doc:"Bytes"`
	MaxMem  int64   `json:"maxmem,omitempty" doc:"Bytes"`
	Disk    int64   `json:"disk,omitempty" doc:"Bytes"`
	MaxDisk int64   `json:"maxdisk,omitempty" doc:"Bytes"`
	Uptime  int64   `json:"uptime,omitempty" doc:"Seconds"`
	Shared  bool    `json:"shared,omitempty"`
}

func resources(c *sdk.Call, in resourcesIn) (resourcesOut, error) {
	words := []string{"get", "/cluster/resources"}
	switch in.Type {
	case "":
	case "container":
		words = append(words, "--type", "vm")
	default:
		words = append(words, "--type", in.Type)
	}
	var all []struct {
		pve.Guest
		ID                           string `need:"true"`
		Storage, PluginType, Content string
		Shared                       pve.Int
	}
	if err := pve.On(c, "").JSON(&all, words...); err != nil {
		return resourcesOut{}, err
	}
	out := resourcesOut{Resources: []resource{}}
	table := [][]string{{"ID", "TYPE", "NODE", "STATUS", "NAME"}}
	for _, r := range all {
		if in.Type != "container" || r.Type == "lxc" {
			out.Resources = append(out.Resources, resource{
				r.ID,
				r.Type,
				r.Node,
				r.Name,
				r.Status,
				int(r.VMID),
				r.Storage,
				r.PluginType,
				r.Content,
				r.Pool,
				r.Lock,
				r.Tags,
				r.HAState,
				float64(r.CPU),
				float64(r.MaxCPU),
				int64(r.Mem),
				int64(r.MaxMem),
				int64(r.Disk),
				int64(r.MaxDisk),
				int64(r.Uptime),
				r.Shared != 0,
			})
		}
	}
	slices.SortFunc(out.Resources, func(a, b resource) int { return strings.Compare(a.ID, b.ID) })
	for _, r := range out.Resources {
		table = append(table, []string{r.ID, r.Type, r.Node, r.Status, cmp.Or(r.Name, r.Storage)})
	}
	out.Count = len(out.Resources)
	out.Reply = pve.Human(pve.Table(table))
	return out, nil
}
