package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

type allIn struct {
}

type nodeIn struct {
	Node string `json:"node" doc:"Node name" target:"node"`
}

type clusterOut struct {
	pve.Reply
	Name    string   `json:"name,omitempty" doc:"Of the cluster; absent for a node that is in none"`
	Quorate bool     `json:"quorate" doc:"Changes are possible"`
	Nodes   []member `json:"nodes"`
}

type member struct {
	Name   string `json:"name"`
	Online bool   `json:"online"`
	IP     string `json:"ip,omitempty"`
	Local  bool   `json:"local,omitempty" doc:"The node that was asked"`
}

// statusRow is a row of /cluster/status: the cluster, or a node.
type statusRow struct {
	Type, Name             string `need:"true"`
	IP                     string
	Quorate, Online, Local *pve.Int
}

// members reads the rows. A node without a cluster prints a row for itself, and none for a cluster;
// it needs no quorum. An answer without that row, or without the quorum of a cluster, is an error:
// it must not be reported as healthy.
func members(asked string, rows []statusRow) (clusterOut, error) {
	broken := func(why string) (clusterOut, error) {
		return clusterOut{}, &sdk.Error{Code: "bad_answer",
			Message: "asking " + asked + " for /cluster/status: " + why,
			Suggestion: "Do not take the cluster for healthy. Tell your user, who can run pvecm " +
				"status."}
	}
	yes := func(i *pve.Int) bool { return i != nil && *i != 0 }
	out := clusterOut{Quorate: false, Nodes: []member{}}
	clusters := 0
	for _, r := range rows {
		switch r.Type {
		case "cluster":
			if clusters++; r.Quorate == nil || clusters > 1 {
				return broken("it does not say whether the cluster has quorum")
			}
			out.Name, out.Quorate = r.Name, yes(r.Quorate)
		case "node":
			if r.Online == nil || !pve.ValidNode(r.Name) || slices.ContainsFunc(out.Nodes,
				func(m member) bool { return m.Name == r.Name }) {
				return broken(fmt.Sprintf("the row of node %q is incomplete or stands twice",
					r.Name))
			}
			out.Nodes = append(out.Nodes, member{r.Name, yes(r.Online), r.IP, yes(r.Local)})
		}
	}
	if len(out.Nodes) == 0 {
		return broken("it lists no node")
	}
	out.Quorate = out.Quorate || clusters == 0
	return out, nil
}

func clusterStatus(c *sdk.Call, in allIn) (clusterOut, error) {
	n := pve.On(c, "")
	var rows []statusRow
	if err := n.JSON(&rows, "get", "/cluster/status"); err != nil {
		return clusterOut{}, err
	}
	out, err := members(n.Name, rows)
	if err != nil {
		return clusterOut{}, err
	}
	table := [][]string{{"NODE", "ONLINE", "ADDRESS"}}
	slices.SortFunc(out.Nodes, func(a, b member) int { return strings.Compare(a.Name, b.Name) })
	for _, m := range out.Nodes {
		table = append(table,
			[]string{m.Name, map[bool]string{true: "yes", false: "NO"}[m.Online], m.IP})
	}
	human := fmt.Sprintf("%s is in no cluster.", n.Name)
	switch {
	case out.Name != "" && out.Quorate:
		human = fmt.Sprintf("Cluster %s has quorum.", out.Name)
	case out.Name != "":
		human = fmt.Sprintf("Cluster %s has NO quorum: reads work, changes do not.", out.Name)
	}
	out.Reply = pve.Human(human + "\n" + pve.Table(table))
	return out, nil
}

type nodeOut struct {
	pve.Reply
	Node     string   `json:"node"`
	Uptime   int64    `json:"uptime" doc:"Seconds"`
	CPU      float64  `json:"cpu" doc:"Fraction of cpus in use"`
	CPUs     int64    `json:"cpus"`
	CPUModel string   `json:"cpu_model"`
	Load     []string `json:"loadavg" doc:"Over 1, 5 and 15 minutes"`
	Memory   usage    `json:"memory"`
	Swap     usage    `json:"swap"`
	RootFS   usage    `json:"rootfs"`
	Kernel   string   `json:"kernel"`
	Version  string   `json:"pveversion"`
}

type usage struct {
	Total int64 `json:"total" doc:"Bytes"`
	Used  int64 `json:"used" doc:"Bytes"`
	Free  int64 `json:"free" doc:"Bytes"`
}

type rawUsage struct{ Total, Used, Free pve.Int }

func (u rawUsage) usage() usage { return usage{int64(u.Total), int64(u.Used), int64(u.Free)} }

func nodeStatus(c *sdk.Call, in nodeIn) (nodeOut, error) {
	n := pve.On(c, in.Node)
	var raw struct {
		Uptime     pve.Int   `need:"true"`
		CPU        pve.Float `need:"true"`
		LoadAvg    []json.RawMessage
		Memory     rawUsage `need:"true"`
		Swap       rawUsage
		RootFS     rawUsage
		PVEVersion string
		KVersion   string
		CPUInfo    struct {
			CPUs  pve.Int
			Model string
		}
	}
	if err := n.JSON(&raw, "get", "/nodes/"+n.Name+"/status"); err != nil {
		return nodeOut{}, err
	}
	out := nodeOut{
		Node:     n.Name,
		Uptime:   int64(raw.Uptime),
		CPU:      float64(raw.CPU),
		CPUs:     int64(raw.CPUInfo.CPUs),
		CPUModel: raw.CPUInfo.Model,
		Load:     []string{},
		Memory:   raw.Memory.usage(),
		Swap:     raw.Swap.usage(),
		RootFS:   raw.RootFS.usage(),
		Kernel:   raw.KVersion,
		Version:  raw.PVEVersion,
	}
	for _, l := range raw.LoadAvg {
		out.Load = append(out.Load, strings.Trim(string(l), `"`))
	}
	human := fmt.Sprintf(
		"%s: up %s, CPU %.0f%% of %d, load %s, memory %s of %s, root disk %s of %s, %s.",
		n.Name,
		pve.Ago(out.Uptime),
		100*out.CPU,
		out.CPUs,
		strings.Join(out.Load, " "),
		pve.Size(out.Memory.Used),
		pve.Size(out.Memory.Total),
		pve.Size(out.RootFS.Used),
		pve.Size(out.RootFS.Total),
		out.Version,
	)
	out.Reply = pve.Human(human)
	return out, nil
}
