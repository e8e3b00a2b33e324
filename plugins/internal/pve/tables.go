package pve

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// NodeRow, GuestRow and StorageRow are rows of lists in results: bytes, seconds and fractions, as
// Proxmox gives them.
type NodeRow struct {
	Node   string  `json:"node"`
	Status string  `json:"status" doc:"online, offline or unknown"`
	CPU    float64 `json:"cpu" doc:"Fraction of cpus in use"`
	CPUs   float64 `json:"cpus"`
	Mem    int64   `json:"mem" doc:"Bytes in use"`
	MaxMem int64   `json:"maxmem" doc:"Bytes"`
	Uptime int64   `json:"uptime" doc:"Seconds"`
}

type GuestRow struct {
	VMID     int     `json:"vmid"`
	Type     string  `json:"type" doc:"lxc or qemu"`
	Name     string  `json:"name"`
	Node     string  `json:"node"`
	Status   string  `json:"status"`
	Lock     string  `json:"lock,omitempty"`
	Tags     string  `json:"tags,omitempty"`
	Pool     string  `json:"pool,omitempty"`
	HAState  string  `json:"hastate,omitempty"`
	Template bool    `json:"template,omitempty"`
	CPU      float64 `json:"cpu" doc:"Fraction of cpus in use"`
	CPUs     float64 `json:"cpus"`
	Mem      int64   `json:"mem" doc:"Bytes in use"`
	MaxMem   int64   `json:"maxmem" doc:"Bytes"`
	Disk     int64   `json:"disk" doc:"Bytes in use, 0 where it is not known"`
	MaxDisk  int64   `json:"maxdisk" doc:"Bytes"`
	Uptime   int64   `json:"uptime" doc:"Seconds"`
}

// Docs describes what does not fit into a tag.
func (GuestRow) Docs() map[string]string {
	return map[string]string{
		"status": "running, stopped, or unknown when its node gives no figures",
	}
}

type StorageRow struct {
	Storage string `json:"storage"`
	Node    string `json:"node"`
	Type    string `json:"type" doc:"dir, zfspool, nfs …"`
	Content string `json:"content" doc:"What it may hold"`
	Status  string `json:"status" doc:"available or unknown"`
	Shared  bool   `json:"shared"`
	Used    int64  `json:"used" doc:"Bytes"`
	Total   int64  `json:"total" doc:"Bytes"`
}

type nodeRow struct {
	Node   string `json:"node" need:"true"`
	Status string `json:"status" need:"true"`
	CPU    Float  `json:"cpu"`
	MaxCPU Float  `json:"maxcpu"`
	Mem    Int    `json:"mem"`
	MaxMem Int    `json:"maxmem"`
	Uptime Int    `json:"uptime"`
}

type storageRow struct {
	Storage string `json:"storage" need:"true"`
	Node    string `json:"node" need:"true"`
	Type    string `json:"plugintype"`
	Content string `json:"content"`
	Status  string `json:"status"`
	Shared  Int    `json:"shared"`
	Disk    Int    `json:"disk"`
	MaxDisk Int    `json:"maxdisk"`
}

// Nodes lists the nodes of the cluster, sorted by name.
func (n Node) Nodes() ([]NodeRow, error) {
	var all []nodeRow
	if err := n.JSON(&all, "get", "/nodes"); err != nil {
		return nil, err
	}
	rows := []NodeRow{}
	for _, r := range all {
		rows = append(rows, NodeRow{
			r.Node,
			r.Status,
			float64(r.CPU),
			float64(r.MaxCPU),
			int64(r.Mem),
			int64(r.MaxMem),
			int64(r.Uptime),
		})
	}
	slices.SortFunc(rows, func(a, b NodeRow) int { return strings.Compare(a.Node, b.Node) })
	return rows, nil
}

// Rows lists guests of a type (empty for both) on a node (empty for all), sorted by VMID.
func (n Node) Rows(kind, node string) ([]GuestRow, error) {
	all, err := n.Guests()
	rows := []GuestRow{}
	for _, g := range all {
		if (kind == "" || g.Type == kind) && (node == "" || g.Node == node) {
			rows = append(rows, GuestRow{
				int(g.VMID),
				g.Type,
				g.Name,
				g.Node,
				g.Status,
				g.Lock,
				g.Tags,
				g.Pool,
				g.HAState,
				g.Template != 0,
				float64(g.CPU),
				float64(g.MaxCPU),
				int64(g.Mem),
				int64(g.MaxMem),
				int64(g.Disk),
				int64(g.MaxDisk),
				int64(g.Uptime),
			})
		}
	}
	return rows, err
}

// Storages lists the storages of a node (empty for all), sorted by name and node.
func (n Node) Storages(node string) ([]StorageRow, error) {
	var all []storageRow
	if err := n.JSON(&all, "get", "/cluster/resources", "--type", "storage"); err != nil {
		return nil, err
	}
	rows := []StorageRow{}
	for _, r := range all {
		if node == "" || r.Node == node {
			rows = append(rows, StorageRow{
				r.Storage,
				r.Node,
				r.Type,
				r.Content,
				r.Status,
				r.Shared != 0,
				int64(r.Disk),
				int64(r.MaxDisk),
			})
		}
	}
	slices.SortFunc(rows, func(a, b StorageRow) int {
		return cmp.Or(strings.Compare(a.Storage, b.Storage), strings.Compare(a.Node, b.Node))
	})
	return rows, nil
}

// NodesText, GuestsText and StoragesText are the rows for people.
func NodesText(rows []NodeRow) string {
	t := table{{"NODE", "STATUS", "CPU", "MEMORY", "UPTIME"}}
	for _, r := range rows {
		t = append(t, []string{
			r.Node,
			r.Status,
			share(r.CPU, r.CPUs), sizes(r.Mem, r.MaxMem), since(r.Uptime, r.MaxMem),
		})
	}
	return t.String()
}

func GuestsText(rows []GuestRow) string {
	t := table{{"VMID", "TYPE", "STATUS", "NODE", "CPU", "MEMORY", "LOCK", "NAME"}}
	for _, r := range rows {
		status := r.Status
		if r.Template {
			status = "template"
		}
		t = append(t, []string{
			ID(r.VMID),
			r.Type,
			status,
			r.Node,
			share(r.CPU, r.CPUs), sizes(r.Mem, r.MaxMem),
			r.Lock,
			r.Name,
		})
	}
	return t.String()
}

func StoragesText(rows []StorageRow) string {
	t := table{{"STORAGE", "NODE", "TYPE", "STATUS", "USED", "CONTENT"}}
	for _, r := range rows {
		t = append(t,
			[]string{r.Storage, r.Node, r.Type, r.Status, sizes(r.Used, r.Total), r.Content})
	}
	return t.String()
}

// share, sizes and since return "-" for figures that Proxmox does not have, such as those of a node
// that is offline.
func share(cpu, cpus float64) string {
	if cpus == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%% of %.0f", 100*cpu, cpus)
}

func sizes(used, total int64) string {
	if total == 0 {
		return "-"
	}
	return Size(used) + " of " + Size(total)
}

func since(uptime, known int64) string {
	if known == 0 {
		return "-"
	}
	return Ago(uptime)
}

type table [][]string

// String returns the table with aligned columns, or a note that it has no rows.
func (t table) String() string {
	if len(t) < 2 {
		return "There are none."
	}
	width := make([]int, len(t[0]))
	for _, row := range t {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	var b strings.Builder
	for _, row := range t {
		line := ""
		for i, cell := range row {
			line += fmt.Sprintf("%-*s  ", width[i], cell)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Table is rows for people, the first one the head.
func Table(rows [][]string) string { return table(rows).String() }

// Size writes bytes with a binary unit.
func Size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	f, i := float64(n), 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// Ago writes seconds as days, hours and minutes.
func Ago(seconds int64) string {
	switch d, h, m := seconds/86400, seconds/3600%24, seconds/60%60; {
	case d > 0:
		return fmt.Sprintf("%dd %dh", d, h)
	case h > 0:
		return fmt.Sprintf("%dh %dm", h, m)
	default:
		return fmt.Sprintf("%dm %ds", m, seconds%60)
	}
}
