// Command guests is the plugin for virtual machines and containers alike: it lists them, starts and
// stops them, and keeps their snapshots.
package main

import (
	"time"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

func main() {}

func tool(title string, budget int, runs string, commands []string) sdk.Hints {
	return sdk.Hints{Title: title, Imports: []string{"ssh_exec"}, Commands: commands,
		Budget: time.Duration(budget) * time.Second, Runs: runs}
}

func read(title, runs string, commands ...string) sdk.Hints {
	h := tool(title, 30, runs, commands)
	h.ReadOnly, h.Idempotent = true, true
	return h
}

func operate(title string, budget int, destructive, idempotent bool, runs string,
	commands []string) sdk.Hints {
	h := tool(title, budget, runs, commands)
	h.Destructive, h.Idempotent = destructive, idempotent
	return h
}

func verbs(v ...string) []string { return v }

const now = "status/current"

func init() {
	sdk.Serve("guests", "1.0.0",
		listNodesTool, listGuestsTool, getGuestStatusTool, startGuestTool, stopGuestTool,
		restartGuestTool, deleteGuestTool, createSnapshotTool, deleteSnapshotTool,
		rollbackSnapshotTool, getStoragePoolsTool, undoCallTool, listSnapshotsTool)
}

var listNodesTool = sdk.NewTool("list_nodes",
	"List the nodes of the cluster with status, CPU, memory and uptime. Example: {}",
	read("List nodes", "pvesh get /nodes", "pvesh get /nodes"), listNodes)

var listGuestsTool = sdk.NewTool(
	"list_guests",
	"List the virtual machines and containers of the cluster with status, lock, tags and "+
		"resources, about ten seconds old. Not before you act on one: get_guest_status. "+
		"Example: {\"type\":\"lxc\"}",
	read("List guests", "pvesh get /cluster/resources --type vm", pve.Resources),
	listGuests,
)

var getGuestStatusTool = sdk.NewTool(
	"get_guest_status",
	"Show a guest (VM or container) as it is right now: status, lock, protection, "+
		"HA, resources, snapshots. Example: {\"guest_id\":101}",
	read(
		"Status of a guest",
		"pvesh get /nodes/NODE/TYPE/VMID/status/current, …/config, …/snapshot",
		pve.OfGuests(nil, now, "config", "snapshot")...),
	guestStatus,
)

var startGuestTool = sdk.NewTool(
	"start_guest",
	"Start a guest (VM or container); nothing is done if it is running. Example: "+
		"{\"guest_id\":102}",
	operate("Start a guest", 60, false, true, "pct|qm start VMID",
		pve.OfGuests(verbs("start"), now)),
	startGuest,
)

var stopGuestTool = sdk.NewTool(
	"stop_guest",
	"Shut a guest (VM or container) down cleanly, or stop it at once with force "+
		"(data may be lost); nothing is done if it is stopped. "+
		"Example: {\"guest_id\":102}",
	operate("Stop a guest", 60, true, true,
		"pct|qm shutdown VMID --timeout SECONDS, or stop VMID",
		pve.OfGuests(verbs("shutdown", "stop"), now)),
	stopGuest,
)

var restartGuestTool = sdk.NewTool(
	"restart_guest",
	"Restart a running guest cleanly. Not for a stopped one: start_guest. "+
		"Example: {\"guest_id\":101}",
	operate("Restart a guest", 60, true, false, "pct|qm reboot VMID --timeout SECONDS",
		pve.OfGuests(verbs("reboot"), now)),
	restartGuest,
)

var deleteGuestTool = sdk.NewTool(
	"delete_guest",
	"Delete a stopped guest with its disks, for ever. A running or "+
		"protected one is not deleted. Example: {\"guest_id\":104}",
	operate("Delete a guest", 180, true, false,
		"pct|qm destroy VMID --purge 1 --destroy-unreferenced-disks 1",
		pve.OfGuests(verbs("destroy"), now, "config")),
	deleteGuest,
)

var createSnapshotTool = sdk.NewTool(
	"create_snapshot",
	"Make a snapshot of a guest. Example: "+
		"{\"guest_id\":104,\"name\":\"before-upgrade\",\"description\":\"by apt\"}",
	operate("Create a snapshot", 120, false, false,
		"pct|qm snapshot VMID NAME --description TEXT",
		pve.OfGuests(verbs("snapshot"), "snapshot", "feature")),
	createSnapshot,
)

var deleteSnapshotTool = sdk.NewTool(
	"delete_snapshot",
	"Delete a snapshot of a guest; the guest stays as it is. "+
		"Example: {\"guest_id\":104,\"name\":\"before-upgrade\"}",
	operate("Delete a snapshot", 120, true, false, "pct|qm delsnapshot VMID NAME",
		pve.OfGuests(verbs("delsnapshot"), "snapshot")),
	deleteSnapshot,
)

var rollbackSnapshotTool = sdk.NewTool(
	"rollback_snapshot",
	"Set a guest back to a snapshot: what changed since is lost. A running "+
		"one is stopped. Example: {\"guest_id\":104,\"name\":\"before-upgrade\"}",
	operate("Roll back to a snapshot", 120, true, false, "pct|qm rollback VMID NAME --start 1",
		pve.OfGuests(verbs("rollback"), "snapshot")),
	rollbackSnapshot,
)

var getStoragePoolsTool = sdk.NewTool(
	"get_storage_pools",
	"List the storages of every node with type, status and usage. Example: "+
		"{\"node\":\"pve1\"}",
	read("List storages", "pvesh get /cluster/resources --type storage", pve.Resources),
	storagePools,
)
