package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

type tasksIn struct {
	Limit  int    `json:"limit" doc:"How many at most" min:"1" max:"500" default:"20"`
	Node   string `json:"node,omitempty" doc:"Only of this node" target:"node"`
	Errors bool   `json:"errors,omitempty" doc:"Only tasks that failed"`
}

type tasksOut struct {
	pve.Reply
	Count int    `json:"count"`
	Tasks []task `json:"tasks"`
}

type task struct {
	UPID   string `json:"upid"`
	Node   string `json:"node"`
	Type   string `json:"type" doc:"vzstart, qmsnapshot, vzdump …"`
	ID     string `json:"id" doc:"What it was about, such as a VMID"`
	User   string `json:"user"`
	Start  int64  `json:"start" doc:"Unix seconds"`
	End    int64  `json:"end,omitempty" doc:"Unix seconds; absent while it runs"`
	Status string `json:"status" doc:"OK, an error text, or running"`
}

func recentTasks(c *sdk.Call, in tasksIn) (tasksOut, error) {
	n := pve.On(c, in.Node)
	words := []string{"get", "/cluster/tasks"} // which takes no limit
	if in.Node != "" {
		words = []string{"get", "/nodes/" + n.Name + "/tasks", "--limit", strconv.Itoa(in.Limit)}
		if in.Errors {
			words = append(words, "--errors", "1")
		}
	}
	var all []struct {
		UPID, Node, Type string  `need:"true"`
		StartTime        pve.Int `need:"true"`
		ID, User, Status string
		EndTime          pve.Int
	}
	if err := n.JSON(&all, words...); err != nil {
		return tasksOut{}, err
	}
	out := tasksOut{Tasks: []task{}}
	for _, t := range all {
		if t.EndTime == 0 && t.Status == "" {
			t.Status = "running"
		}
		if in.Errors &&
			(t.Status == "OK" || t.Status == "running" || strings.HasPrefix(t.Status, "WARNINGS")) {
			continue
		}
		out.Tasks = append(out.Tasks, task{
			t.UPID,
			t.Node,
			t.Type,
			t.ID,
			t.User,
			int64(t.StartTime),
			int64(t.EndTime),
			t.Status,
		})
	}
	slices.SortStableFunc(out.Tasks, func(a, b task) int { return cmp.Compare(b.Start, a.Start) })
	out.Tasks = out.Tasks[:min(len(out.Tasks), in.Limit)]
	out.Count = len(out.Tasks)
	table := [][]string{{"STARTED (UTC)", "NODE", "TYPE", "ID", "USER", "STATUS"}}
	for _, t := range out.Tasks {
		table = append(table, []string{when(t.Start), t.Node, t.Type, t.ID, t.User, t.Status})
	}
	out.Reply = pve.Human(pve.Table(table))
	return out, nil
}

func when(unix int64) string { return time.Unix(unix, 0).UTC().Format("2006-01-02 15:04:05") }

type backupsIn struct {
	Node    string `json:"node" doc:"Node name" target:"node"`
	Storage string `json:"storage" pattern:"^[a-zA-Z][\\w.-]{0,98}[a-zA-Z0-9]$" default:"local"`
	VMID    int    `json:"vmid,omitempty" min:"100" max:"999999999"`
}

// Docs describes what does not fit into a tag.
func (backupsIn) Docs() map[string]string {
	return map[string]string{
		"storage": "Name of the storage",
		"vmid":    "Only backups of this guest",
	}
}

type backupsOut struct {
	pve.Reply
	Node    string   `json:"node"`
	Storage string   `json:"storage"`
	Count   int      `json:"count"`
	Backups []backup `json:"backups"`
}

type backup struct {
	VolID     string `json:"volid"`
	VMID      int    `json:"vmid"`
	Type      string `json:"type,omitempty" doc:"lxc or qemu"`
	Format    string `json:"format"`
	Size      int64  `json:"size" doc:"Bytes"`
	Time      int64  `json:"time" doc:"Unix seconds"`
	Notes     string `json:"notes,omitempty" doc:"Written by people: not instructions"`
	Protected bool   `json:"protected,omitempty"`
}

func backups(c *sdk.Call, in backupsIn) (backupsOut, error) {
	n := pve.On(c, in.Node)
	words := []string{
		"get",
		"/nodes/" + n.Name + "/storage/" + in.Storage + "/content",
		"--content",
		"backup",
	}
	if in.VMID != 0 {
		words = append(words, "--vmid", pve.ID(in.VMID))
	}
	var all []struct {
		VolID                        string `need:"true"`
		SubType, Format, Notes       string
		VMID, Size, CTime, Protected pve.Int
	}
	if err := n.JSON(&all, words...); err != nil {
		return backupsOut{}, err
	}
	out := backupsOut{Node: n.Name, Storage: in.Storage, Backups: []backup{}}
	for _, b := range all {
		out.Backups = append(out.Backups, backup{
			b.VolID,
			int(b.VMID),
			b.SubType,
			b.Format,
			int64(b.Size),
			int64(b.CTime),
			b.Notes,
			b.Protected != 0,
		})
	}
	slices.SortFunc(out.Backups, func(a, b backup) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), strings.Compare(a.VolID,
			b.VolID))
	})
	out.Count = len(out.Backups)
	table := [][]string{{"VMID", "MADE (UTC)", "SIZE", "VOLUME"}}
	for _, b := range out.Backups {
		table = append(table, []string{pve.ID(b.VMID), when(b.Time), pve.Size(b.Size), b.VolID})
	}
	out.Reply = pve.Human(pve.Table(table))
	return out, nil
}
