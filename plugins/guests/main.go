// Command guests is the plugin for virtual machines and containers alike: it lists them, starts and stops them, and keeps their snapshots.
package main

import (
	"time"

	"github.com/caponier-mcp/caponier/sdk"
)

func main() {}

func init() {
	tool := func(title string, budget int, runs string) sdk.Hints {
		return sdk.Hints{Title: title, Imports: []string{"ssh_exec"}, Budget: time.Duration(budget) * time.Second, Runs: runs}
	}
	read := func(title, runs string) sdk.Hints {
		h := tool(title, 30, runs)
		h.ReadOnly, h.Idempotent = true, true
		return h
	}
	change := func(title string, budget int, destructive, idempotent bool, runs string) sdk.Hints {
		h := tool(title, budget, runs)
		h.Destructive, h.Idempotent = destructive, idempotent
		return h
	}
	sdk.Serve("guests", "1.0.0",
		sdk.NewTool("list_nodes", "List the nodes of the cluster with status, CPU, memory and uptime. Example: {}",
			read("List nodes", "pvesh get /nodes"), listNodes),
		sdk.NewTool("list_guests", "List all virtual machines and containers of the cluster with VMID, type, name, node, status, lock, tags and resources. Figures are about ten seconds old. Example: {\"type\":\"lxc\"}",
			read("List guests", "pvesh get /cluster/resources --type vm"), listGuests),
		sdk.NewTool("get_guest_status", "Show one virtual machine or container in detail, as it is right now: status, lock, protection, HA, resources, snapshots. Example: {\"guest_id\":101}",
			read("Status of a guest", "pvesh get /nodes/NODE/TYPE/VMID/status/current, …/config, …/snapshot"), guestStatus),
		sdk.NewTool("start_guest", "Start a virtual machine or container. If it is running already nothing is done and changed is false. Example: {\"guest_id\":102}",
			change("Start a guest", 60, false, true, "pct|qm start VMID"), startGuest),
		sdk.NewTool("stop_guest", "Shut a virtual machine or container down cleanly, or stop it at once with force (like pulling its plug: data may be lost). If it is stopped already nothing is done. "+
			"Example: {\"guest_id\":102}", change("Stop a guest", 60, true, true, "pct|qm shutdown VMID --timeout SECONDS, or stop VMID"), stopGuest),
		sdk.NewTool("restart_guest", "Restart a running virtual machine or container cleanly; pending changes of its configuration take effect. Example: {\"guest_id\":101}",
			change("Restart a guest", 60, true, false, "pct|qm reboot VMID --timeout SECONDS"), restartGuest),
		sdk.NewTool("delete_guest", "Delete a stopped virtual machine or container with its disks and its entries in backup jobs, for ever. A running or protected guest is not deleted. Example: {\"guest_id\":104}",
			change("Delete a guest", 180, true, false, "pct|qm destroy VMID --purge 1 --destroy-unreferenced-disks 1"), deleteGuest),
		sdk.NewTool("create_snapshot", "Make a snapshot of a virtual machine or container. Example: {\"guest_id\":104,\"name\":\"before-upgrade\",\"description\":\"before apt full-upgrade\"}",
			change("Create a snapshot", 120, false, false, "pct|qm snapshot VMID NAME --description TEXT"), createSnapshot),
		sdk.NewTool("delete_snapshot", "Delete one snapshot of a virtual machine or container; the guest itself stays as it is. Example: {\"guest_id\":104,\"name\":\"before-upgrade\"}",
			change("Delete a snapshot", 120, true, false, "pct|qm delsnapshot VMID NAME"), deleteSnapshot),
		sdk.NewTool("get_storage_pools", "List the storages of every node with type, status and usage. Example: {\"node\":\"pve1\"}",
			read("List storages", "pvesh get /cluster/resources --type storage"), storagePools),
	)
}
