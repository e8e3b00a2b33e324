// Command containers is the plugin that runs commands in LXC containers of Proxmox VE, starts and stops them, and moves files in and out.
package main

import (
	"time"

	"github.com/caponier-mcp/caponier/sdk"
)

func main() {}

func init() {
	exec := []string{"ssh_exec"}
	files := []string{"ssh_exec", "stage", "sftp_stat", "sftp_get", "sftp_put"}
	sdk.Serve("containers", "1.0.0",
		sdk.NewTool("proxmox_container_exec_command",
			"Run a shell command (sh -c) as root inside an LXC container and return its exit code, stdout and stderr. Pipes, redirections and expansions work, inside the container only. "+
				"The command is stopped after timeout seconds. Example: {\"vmid\":101,\"command\":\"df -h | tail -1\"}",
			sdk.Hints{Title: "Run a command in a container", Destructive: true, OpenWorld: true, Imports: exec, Budget: 330 * time.Second,
				Runs: "pct exec VMID --keep-env 0 -- timeout -k 2 SECONDS sh -c COMMAND"}, runCommand),
		sdk.NewTool("proxmox_list_containers",
			"List the LXC containers of the node's cluster, with VMID, name, node, status, lock, tags and resources. Figures are about ten seconds old. Example: {}",
			sdk.Hints{Title: "List containers", ReadOnly: true, Idempotent: true, Imports: exec, Budget: 30 * time.Second, Runs: "pvesh get /cluster/resources --type vm"}, list),
		sdk.NewTool("proxmox_container_status",
			"Say whether one LXC container is running or stopped right now, and what its configuration says of locks, protection and resources. Example: {\"vmid\":101}",
			sdk.Hints{Title: "Status of a container", ReadOnly: true, Idempotent: true, Imports: exec, Budget: 45 * time.Second, Runs: "pct status VMID; pct config VMID"}, status),
		sdk.NewTool("proxmox_start_container",
			"Start an LXC container. If it is running already nothing is done and changed is false. Example: {\"vmid\":102}",
			sdk.Hints{Title: "Start a container", Idempotent: true, Imports: exec, Budget: 180 * time.Second, Runs: "pct status VMID; pct start VMID"}, start),
		sdk.NewTool("proxmox_stop_container",
			"Stop an LXC container at once, like pulling its plug; with graceful it is asked to shut down first and stopped after timeout seconds. If it is stopped already nothing is done and "+
				"changed is false. Example: {\"vmid\":102,\"graceful\":true}",
			sdk.Hints{Title: "Stop a container", Destructive: true, Idempotent: true, Imports: exec, Budget: 11 * time.Minute,
				Runs: "pct status VMID; pct stop VMID, or pct shutdown VMID --timeout SECONDS --forceStop 1"}, stop),
		sdk.NewTool("proxmox_download_file_from_container",
			"Copy one file from an LXC container to a path relative to your workspace. Sizes and SHA-256 are compared on both sides. "+
				"Example: {\"vmid\":101,\"container_path\":\"/etc/os-release\",\"local_path\":\"os-release\"}",
			sdk.Hints{Title: "Download a file from a container", Imports: files, Budget: 5 * time.Minute,
				Runs: "pct exec VMID -- stat, sha256sum; pct pull VMID PATH into a directory of its own; sha256sum; SFTP to the workspace"}, download),
		sdk.NewTool("proxmox_upload_file_to_container",
			"Copy one file of your workspace into an LXC container, owned by root. Nothing is replaced unless overwrite is true. The SHA-256 inside the container is compared. "+
				"Example: {\"vmid\":101,\"local_path\":\"app.conf\",\"container_path\":\"/etc/app.conf\",\"permissions\":\"0644\"}",
			sdk.Hints{Title: "Upload a file to a container", Destructive: true, Imports: files, Budget: 5 * time.Minute,
				Runs: "SFTP into a directory of its own; pct push VMID --perms MODE --user 0 --group 0; pct exec VMID -- stat, sha256sum"}, upload),
	)
}
