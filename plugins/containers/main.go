// Command containers is the plugin that runs commands in LXC containers of Proxmox VE, starts and
// stops them, and moves files in and out.
package main

import (
	"time"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

func main() {}

var (
	exec  = []string{"ssh_exec"}
	files = []string{"ssh_exec", "stage", "sftp_stat", "sftp_get", "sftp_put"}
)

func init() {
	sdk.Serve("containers", "1.0.0",
		containerExecCommandTool, listContainersTool, containerStatusTool, startContainerTool,
		stopContainerTool, downloadFileFromContainerTool, uploadFileToContainerTool)
}

var containerExecCommandTool = sdk.NewTool(
	"proxmox_container_exec_command",
	"Run shell text (sh -c) as root inside an LXC container; it is stopped after timeout "+
		"seconds. Returns exit code, stdout and stderr. Not for its start, stop or files. "+
		"Example: "+
		"{\"vmid\":101,\"command\":\"df -h | tail -1\"}",
	sdk.Hints{
		Title:       "Run a command in a container",
		Destructive: true,
		OpenWorld:   true,
		Imports:     exec,
		Commands:    []string{"pct exec", pve.Resources},
		Budget:      330 * time.Second,
		Runs:        "pct exec VMID --keep-env 0 -- timeout -k 2 SECONDS sh -c COMMAND",
	},
	runCommand,
)

var listContainersTool = sdk.NewTool(
	"proxmox_list_containers",
	"List the LXC containers of the cluster with name, node, status, lock, tags and "+
		"resources, about ten seconds old. Example: {}",
	sdk.Hints{
		Title:      "List containers",
		ReadOnly:   true,
		Idempotent: true,
		Imports:    exec,
		Commands:   []string{pve.Resources},
		Budget:     30 * time.Second,
		Runs:       "pvesh get /cluster/resources --type vm",
		AliasOf:    "list_guests",
	},
	list,
)

var containerStatusTool = sdk.NewTool(
	"proxmox_container_status",
	"Say whether an LXC container is running right now, and whether it is locked or "+
		"protected. Example: {\"vmid\":101}",
	sdk.Hints{
		Title:      "Status of a container",
		ReadOnly:   true,
		Idempotent: true,
		Imports:    exec,
		Commands:   []string{"pct status", "pct config", pve.Resources},
		Budget:     45 * time.Second,
		Runs:       "pct status VMID; pct config VMID",
		AliasOf:    "get_guest_status",
	},
	status,
)

var startContainerTool = sdk.NewTool(
	"proxmox_start_container",
	"Start an LXC container; nothing is done if it is running. Example: {\"vmid\":102}",
	sdk.Hints{
		Title:      "Start a container",
		Idempotent: true,
		Imports:    exec,
		Commands:   []string{"pct start", "pct status", pve.Resources},
		Budget:     180 * time.Second,
		Runs:       "pct status VMID; pct start VMID",
		AliasOf:    "start_guest",
	},
	start,
)

var stopContainerTool = sdk.NewTool(
	"proxmox_stop_container",
	"Stop an LXC container at once, like pulling its plug; with graceful it may shut down "+
		"first. Nothing is done if it is stopped. Example: "+
		"{\"vmid\":102,\"graceful\":true}",
	sdk.Hints{
		Title:       "Stop a container",
		Destructive: true,
		Idempotent:  true,
		Imports:     exec,
		Commands:    []string{"pct stop", "pct shutdown", "pct status", pve.Resources},
		Budget:      11 * time.Minute,
		Runs: "pct status VMID; pct stop VMID, or pct shutdown VMID --timeout " +
			"SECONDS --forceStop 1",
		AliasOf: "stop_guest",
	},
	stop,
)

var downloadFileFromContainerTool = sdk.NewTool(
	"proxmox_download_file_from_container",
	"Copy one file from an LXC container to your workspace, verified by SHA-256. "+
		"Example: {\"vmid\":101,\"container_path\":\"/etc/os-release\","+
		"\"local_path\":\"os-release\"}",
	sdk.Hints{
		Title:    "Download a file from a container",
		Imports:  files,
		Commands: []string{"pct pull", "pct exec", "sha256sum", pve.Resources},
		Budget:   5 * time.Minute,
		Runs: "pct exec VMID -- stat, sha256sum; pct pull VMID PATH into a directory " +
			"of its own; sha256sum; SFTP to the workspace",
	},
	download,
)

var uploadFileToContainerTool = sdk.NewTool(
	"proxmox_upload_file_to_container",
	"Copy one file of your workspace into an LXC container, owned by root, verified by "+
		"SHA-256. "+
		"Example: {\"vmid\":101,\"local_path\":\"app.conf\","+
		"\"container_path\":\"/etc/app.conf\",\"permissions\":\"0644\"}",
	sdk.Hints{
		Title:       "Upload a file to a container",
		Destructive: true,
		Imports:     files,
		Commands:    []string{"pct push", "pct exec", pve.Resources},
		Budget:      5 * time.Minute,
		Runs: "SFTP into a directory of its own; pct push VMID --perms MODE --user " +
			"0 --group 0; pct exec VMID -- stat, sha256sum",
	},
	upload,
)
