package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

type startIn struct {
	guestIn
	Confirmed bool `json:"confirmed,omitempty" doc:"User agreed" confirm:"true"`
}

type stopIn struct {
	guestIn
	Force     bool `json:"force,omitempty" doc:"Stop it at once"`
	Timeout   int  `json:"timeout" min:"1" max:"15" default:"15"`
	Confirmed bool `json:"confirmed,omitempty" doc:"User agreed" confirm:"true"`
}

// Docs describes what does not fit into a tag.
func (stopIn) Docs() map[string]string {
	return map[string]string{
		"timeout": "Seconds to shut down, without force",
	}
}

type restartIn struct {
	guestIn
	Timeout   int  `json:"timeout" doc:"Seconds to shut down" min:"1" max:"15" default:"15"`
	Confirmed bool `json:"confirmed,omitempty" doc:"User agreed" confirm:"true"`
}

// acting is the deadline of one lifecycle command within a budget of 60 seconds: a shutdown that is
// ignored takes up to twice its timeout and 15 s.
const acting = 45 * time.Second

func change(c *sdk.Call, in guestIn, want string, again bool, verb string,
	options ...string) (pve.Changed, error) {
	f, err := pve.Find(c, in.Node, in.ID)
	if err != nil {
		return pve.Changed{}, err
	}
	return f.Change(want, again, acting, verb, options...)
}

func startGuest(c *sdk.Call, in startIn) (pve.Changed, error) {
	return change(c, in.guestIn, "running", false, "start")
}

func stopGuest(c *sdk.Call, in stopIn) (pve.Changed, error) {
	if in.Force {
		return change(c, in.guestIn, "stopped", false, "stop")
	}
	return change(c, in.guestIn, "stopped", false, "shutdown", "--timeout", fmt.Sprint(in.Timeout))
}

func restartGuest(c *sdk.Call, in restartIn) (pve.Changed, error) {
	return change(c, in.guestIn, "running", true, "reboot", "--timeout", fmt.Sprint(in.Timeout))
}

type deleteIn struct {
	guestIn
	Confirmed bool `json:"confirmed,omitempty" doc:"User agreed" confirm:"true"`
}

type deleteOut struct {
	pve.Reply
	VMID    int    `json:"vmid"`
	Node    string `json:"node"`
	Name    string `json:"name"`
	Type    string `json:"type"`
	Deleted bool   `json:"deleted"`
}

func deleteGuest(c *sdk.Call, in deleteIn) (deleteOut, error) {
	f, err := pve.Find(c, in.Node, in.ID)
	if err != nil {
		return deleteOut{}, err
	}
	doing := "deleting " + f.String()
	var cfg struct {
		Protection pve.Int `json:"protection"`
		Lock       string  `json:"lock"`
	}
	if err := f.Get(&cfg, "/config", "--current", "1"); err != nil {
		return deleteOut{}, err
	}
	cur, err := f.Current()
	switch {
	case err != nil:
		return deleteOut{}, err
	case cfg.Protection != 0:
		return deleteOut{}, pve.FailText(doing, "protection mode enabled")
	case cfg.Lock != "":
		return deleteOut{}, pve.FailText(doing, "it is locked ("+cfg.Lock+")")
	case cur.HA.Managed != 0:
		return deleteOut{}, &sdk.Error{Code: "ha_managed",
			Message:    doing + ": the HA manager controls it",
			Suggestion: "A person has to remove it from HA first."}
	case cur.Status != "stopped":
		return deleteOut{}, &sdk.Error{Code: "running", Message: doing + ": it is " + cur.Status,
			Suggestion: "Stop it first (stop_guest)."}
	}
	r, err := f.Run(sdk.ExecOptions{Timeout: 150 * time.Second, MaxBytes: 64 << 10}, f.Tool(),
		"destroy", pve.ID(in.ID), "--purge", "1", "--destroy-unreferenced-disks", "1")
	if err != nil {
		return deleteOut{}, err
	}
	out := deleteOut{VMID: in.ID, Node: f.Guest.Node, Name: f.Guest.Name, Type: f.Type,
		Deleted: true}
	switch {
	case r.Planned:
		out.Reply = pve.Human(fmt.Sprintf("The %s (%s) would be deleted, with its disks.", f,
			f.Guest.Name))
		return out, nil
	case r.Exit != 0:
		return deleteOut{}, f.FailGuest(doing, in.ID, f.Type, r)
	}
	e := (*sdk.Error)(nil)
	switch err := f.Get(&cur, "/status/current"); {
	case err != nil && (!errors.As(err, &e) || e.Code != "not_found"):
		return deleteOut{}, pve.After(err, doing)
	case err == nil:
		return deleteOut{}, &sdk.Error{Code: "unknown_outcome",
			Message:    doing + ": Proxmox reported success, but the guest still exists",
			Suggestion: "Look with get_guest_status and get_recent_tasks."}
	}
	out.Reply = pve.Human(fmt.Sprintf("The %s (%s) is deleted, with its disks.", f, f.Guest.Name))
	return out, nil
}

type createSnapshotIn struct {
	guestIn
	about
	Name    string `json:"name" doc:"Of the snapshot" pattern:"^[A-Za-z][A-Za-z0-9_-]{1,39}$"`
	VMState bool   `json:"vmstate,omitempty" doc:"Of a virtual machine: keep its memory too"`
}

type about struct {
	Text string `json:"description,omitzero" pattern:"^([^-\\0-\\x1f][^\\0-\\t\\v-\\x1f]{0,999})?$"`
}

// Docs describes what does not fit into a tag.
func (about) Docs() map[string]string {
	return map[string]string{"description": "For people"}
}

type deleteSnapshotIn struct {
	guestIn
	Name      string `json:"name" pattern:"^[A-Za-z][A-Za-z0-9_-]{1,39}$"`
	Confirmed bool   `json:"confirmed,omitempty" doc:"User agreed" confirm:"true"`
}

// Docs describes what does not fit into a tag.
func (deleteSnapshotIn) Docs() map[string]string {
	return map[string]string{
		"name": "Name of the snapshot",
	}
}

type snapshotOut struct {
	pve.Reply
	VMID      int        `json:"vmid"`
	Node      string     `json:"node"`
	Name      string     `json:"name"`
	Message   string     `json:"message"`
	Snapshots []snapshot `json:"snapshots" doc:"As they are now"`
}

func createSnapshot(c *sdk.Call, in createSnapshotIn) (snapshotOut, error) {
	f, err := pve.Find(c, in.Node, in.ID)
	if err != nil {
		return snapshotOut{}, err
	}
	doing := fmt.Sprintf("making snapshot %s of %s", in.Name, f)
	var feature struct {
		Has pve.Int `json:"hasFeature"`
	}
	switch {
	case in.Name == "current" || in.Name == "vzdump":
		return snapshotOut{}, pve.FailText(doing, "reserved name")
	case in.VMState && f.Type != "qemu":
		return snapshotOut{}, &sdk.Error{Code: "bad_parameter",
			Message:    doing + ": a container has no vmstate",
			Suggestion: "Leave vmstate out."}
	}
	if err := f.Get(&feature, "/feature", "--feature", "snapshot"); err != nil {
		return snapshotOut{}, err
	}
	if feature.Has == 0 {
		return snapshotOut{}, pve.FailText(doing, "snapshot feature is not available")
	}
	argv := []string{f.Tool(), "snapshot", pve.ID(in.ID), in.Name}
	if in.Text != "" {
		argv = append(argv, "--description", in.Text)
	}
	if in.VMState {
		argv = append(argv, "--vmstate", "1")
	}
	return snapshots(f, in.guestIn, doing, in.Name, "made", argv)
}

func deleteSnapshot(c *sdk.Call, in deleteSnapshotIn) (snapshotOut, error) {
	f, err := pve.Find(c, in.Node, in.ID)
	if err != nil {
		return snapshotOut{}, err
	}
	return snapshots(f, in.guestIn, fmt.Sprintf("deleting snapshot %s of %s", in.Name, f), in.Name,
		deleted, []string{f.Tool(), "delsnapshot", pve.ID(in.ID), in.Name})
}

type rollbackSnapshotIn struct {
	guestIn
	Name      string `json:"name" pattern:"^[A-Za-z][A-Za-z0-9_-]{1,39}$"`
	Start     bool   `json:"start,omitempty" doc:"Start the guest afterwards; else it is stopped"`
	Confirmed bool   `json:"confirmed,omitempty" doc:"User agreed" confirm:"true"`
}

// Docs describes what does not fit into a tag.
func (rollbackSnapshotIn) Docs() map[string]string {
	return map[string]string{
		"name": "Name of the snapshot",
	}
}

func rollbackSnapshot(c *sdk.Call, in rollbackSnapshotIn) (snapshotOut, error) {
	f, err := pve.Find(c, in.Node, in.ID)
	if err != nil {
		return snapshotOut{}, err
	}
	argv := []string{f.Tool(), "rollback", pve.ID(in.ID), in.Name}
	if in.Start {
		argv = append(argv, "--start", "1")
	}
	return snapshots(f, in.guestIn, fmt.Sprintf("rolling %s back to snapshot %s", f, in.Name),
		in.Name, "restored", argv)
}

const deleted = "deleted"

// snapshots changes the list of snapshots and believes the list that it reads afterwards.
func snapshots(f pve.Found, in guestIn, doing, name, done string,
	argv []string) (snapshotOut, error) {
	r, err := f.Run(sdk.ExecOptions{Timeout: 90 * time.Second, MaxBytes: 64 << 10}, argv...)
	if err != nil {
		return snapshotOut{}, err
	}
	if r.Exit != 0 {
		return snapshotOut{}, f.FailGuest(doing, in.ID, f.Type, r)
	}
	wanted := done != deleted
	if r.Planned {
		out := snapshotOut{VMID: in.ID, Node: f.Guest.Node, Name: name, Snapshots: []snapshot{},
			Message: fmt.Sprintf("Snapshot %s of %s would be %s.", name, f, done)}
		out.Reply = pve.Human(out.Message)
		return out, nil
	}
	all, err := snapshotsOf(f)
	if err != nil {
		return snapshotOut{}, pve.After(err, doing)
	}
	if there := slices.ContainsFunc(all,
		func(s snapshot) bool { return s.Name == name }); there != wanted {
		is := map[bool]string{true: "there is still", false: "there is no"}[there]
		return snapshotOut{}, &sdk.Error{Code: "failed",
			Message: fmt.Sprintf("%s: Proxmox reported success, but %s such snapshot", doing,
				is),
			Suggestion: "Look at get_recent_tasks."}
	}
	out := snapshotOut{VMID: in.ID, Node: f.Guest.Node, Name: name,
		Message: fmt.Sprintf("Snapshot %s of %s is %s.", name, f, done), Snapshots: all}
	out.Reply = pve.Human(out.Message)
	return out, nil
}
