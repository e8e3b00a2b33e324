// Command cluster is the plugin that watches a Proxmox VE cluster, and operates its guests,
// services and nodes by name.
package main

import (
	"strings"
	"time"

	"github.com/caponier-mcp/caponier/plugins/internal/pve"
	"github.com/caponier-mcp/caponier/sdk"
)

func main() {}

func read(title, runs string, commands ...string) sdk.Hints {
	return sdk.Hints{
		Title:      title,
		ReadOnly:   true,
		Idempotent: true,
		Imports:    []string{"ssh_exec"},
		Commands:   commands,
		Budget:     30 * time.Second,
		Runs:       runs,
	}
}

// lifecycle is what the tool of one command of pct or qm is, such as "pct start".
func lifecycle(title, command, operands string, destructive, idempotent bool) sdk.Hints {
	program, verb, _ := strings.Cut(command, " ")
	kind := map[string]string{"pct": "lxc", "qm": "qemu"}[program]
	return sdk.Hints{
		Title:       title,
		Destructive: destructive,
		Idempotent:  idempotent,
		Imports:     []string{"ssh_exec"},
		Budget:      120 * time.Second,
		Runs:        command + " " + operands,
		Commands:    []string{command, pve.Resources, pve.Reads(kind, "status/current")},
		AliasOf:     strings.Replace(verb, "reboot", "restart", 1) + "_guest",
	}
}

func alias(of string, h sdk.Hints) sdk.Hints {
	h.AliasOf = of
	return h
}

func temperature() sdk.Hints {
	h := read("Temperatures of a node",
		"cat -- /sys/class/thermal/thermal_zone*/temp, the zones as SFTP lists them", "cat")
	h.Imports = []string{"ssh_exec", "sftp_list"}
	return h
}

func init() {
	sdk.Serve("cluster", "1.0.0",
		getClusterStatusTool, getNodeStatusTool, getVmsTool, getContainersTool, getStorageTool,
		getClusterResourcesTool, getNodeTemperatureTool, getRecentTasksTool, getBackupsTool,
		startVmTool, stopVmTool, restartVmTool, startContainerTool, stopContainerTool,
		restartContainerTool, executeSshTool, listAllowedCommandsTool, restartServiceTool,
		wakeNodeTool, rebootNodeTool)
}

var getClusterStatusTool = sdk.NewTool("get_cluster_status",
	"Say whether the cluster is healthy: quorum, and which nodes are online. Example: {}",
	read("Health of the cluster", "pvesh get /cluster/status", "pvesh get /cluster/status"),
	clusterStatus)

var getNodeStatusTool = sdk.NewTool(
	"get_node_status",
	"Show CPU, memory, load, disk, uptime and versions of one node. Example: "+
		"{\"node\":\"pve1\"}",
	read("Status of a node", "pvesh get /nodes/NODE/status",
		"pvesh get /nodes/{node}/status"),
	nodeStatus,
)

var getVmsTool = sdk.NewTool("get_vms", "List the virtual machines of the cluster. Example: {}",
	alias("list_guests", read("List virtual machines", "pvesh get /cluster/resources --type vm",
		pve.Resources)),
	vms)

var getContainersTool = sdk.NewTool("get_containers", "List the LXC containers of the cluster. "+
	"Example: {}",
	alias("list_guests", read("List containers", "pvesh get /cluster/resources --type vm",
		pve.Resources)),
	containers)

var getStorageTool = sdk.NewTool("get_storage", "List all storages of the cluster with usage. "+
	"Example: {}",
	alias("get_storage_pools", read("List storages",
		"pvesh get /cluster/resources --type storage", pve.Resources)),
	storage)

var getClusterResourcesTool = sdk.NewTool(
	"get_cluster_resources",
	"List all resources of the cluster, or those of one type, as Proxmox gives them. Not for "+
		"guests, nodes or storages alone: list_guests, list_nodes, get_storage_pools. "+
		"Example: {\"type\":\"node\"}",
	read("List resources", "pvesh get /cluster/resources [--type TYPE]", pve.Resources),
	resources,
)

var getNodeTemperatureTool = sdk.NewTool("get_node_temperature",
	"Read the thermal zones of one node, in degrees Celsius. Example: {\"node\":\"pve1\"}",
	temperature(), nodeTemperature)

var getRecentTasksTool = sdk.NewTool(
	"get_recent_tasks",
	"List the last tasks of the cluster or of one node, newest first: who started them, "+
		"how they ended. Example: {\"limit\":10,\"errors\":true}",
	read("Recent tasks", "pvesh get /cluster/tasks, or /nodes/NODE/tasks --limit LIMIT",
		"pvesh get /cluster/tasks", "pvesh get /nodes/{node}/tasks"),
	recentTasks,
)

var getBackupsTool = sdk.NewTool(
	"get_backups",
	"List the backups on one storage of one node. Example: "+
		"{\"node\":\"pve1\",\"storage\":\"local\"}",
	read("List backups", "pvesh get /nodes/NODE/storage/STORAGE/content --content backup",
		"pvesh get /nodes/{node}/storage/{storage}/content"),
	backups,
)

var startVmTool = sdk.NewTool(
	"start_vm",
	"Start a virtual machine. Nothing is done if it is running. Example: "+
		"{\"node\":\"pve1\",\"vmid\":200}",
	lifecycle("Start a virtual machine", "qm start", "VMID", false, true),
	act("qemu", "running", false, "start"),
)

var stopVmTool = sdk.NewTool(
	"stop_vm",
	"Stop a virtual machine at once, like pulling its plug. Nothing is done if it is "+
		"stopped. Example: {\"node\":\"pve1\",\"vmid\":200}",
	lifecycle("Stop a virtual machine", "qm stop", "VMID", true, true),
	act("qemu", "stopped", false, "stop"),
)

var restartVmTool = sdk.NewTool("restart_vm",
	"Restart a running virtual machine cleanly. Example: {\"node\":\"pve1\",\"vmid\":200}",
	lifecycle("Restart a virtual machine", "qm reboot", "VMID --timeout 30", true, false),
	act("qemu", "running", true, "reboot", "--timeout", "30"))

var startContainerTool = sdk.NewTool(
	"start_container",
	"Start an LXC container. Nothing is done if it is running. Example: "+
		"{\"node\":\"pve1\",\"vmid\":102}",
	lifecycle("Start a container", "pct start", "VMID", false, true),
	act("lxc", "running", false, "start"),
)

var stopContainerTool = sdk.NewTool(
	"stop_container",
	"Stop an LXC container at once, like pulling its plug. Nothing is done if it is "+
		"stopped. Example: {\"node\":\"pve1\",\"vmid\":101}",
	lifecycle("Stop a container", "pct stop", "VMID", true, true),
	act("lxc", "stopped", false, "stop"),
)

var restartContainerTool = sdk.NewTool("restart_container",
	"Restart a running LXC container cleanly. Example: {\"node\":\"pve1\",\"vmid\":101}",
	lifecycle("Restart a container", "pct reboot", "VMID --timeout 30", true, false),
	act("lxc", "running", true, "reboot", "--timeout", "30"))

var executeSshTool = sdk.NewTool(
	"execute_ssh",
	"Run simple commands, joined by | && || ;, on a node. Each must be in the site's "+
		"command table; no expansion, substitution, redirection or glob. Not where another "+
		"tool does the job. "+
		"Example: {\"node\":\"pve1\",\"command\":\"df -h && free -m\"}",
	sdk.Hints{
		Title:       "Run a command on a node",
		Destructive: true,
		OpenWorld:   true,
		Imports:     []string{"ssh_script"},
		Commands:    []string{"*"},
		Budget:      40 * time.Second,
		Runs:        "COMMAND, every word quoted",
	},
	executeSSH,
)

var restartServiceTool = sdk.NewTool(
	"restart_service",
	"Restart a systemd service of a node and say whether it is active afterwards. "+
		"Example: {\"node\":\"pve1\",\"service\":\"pveproxy\"}",
	sdk.Hints{
		Title:       "Restart a service",
		Destructive: true,
		Imports:     []string{"ssh_exec"},
		Commands:    []string{"systemctl restart", "systemctl is-active"},
		Budget:      60 * time.Second,
		Runs:        "systemctl restart -- UNIT; systemctl is-active UNIT",
	},
	restartService,
)

var wakeNodeTool = sdk.NewTool(
	"wake_node",
	"Wake a node that is off by Wake-on-LAN, sent by another node of its cluster. "+
		"Example: {\"node\":\"pve2\"}",
	sdk.Hints{
		Title:      "Wake a node",
		Idempotent: true,
		Imports:    []string{"ssh_exec"},
		Commands:   []string{"pvesh create /nodes/{node}/wakeonlan"},
		Budget:     30 * time.Second,
		Runs:       "pvesh create /nodes/NODE/wakeonlan, on another node",
	},
	wakeNode,
)

var rebootNodeTool = sdk.NewTool(
	"reboot_node",
	"Reboot a node with everything on it. Policy never allows this. Example: "+
		"{\"node\":\"pve1\"}",
	sdk.Hints{
		Title:       "Reboot a node",
		Destructive: true,
		Imports:     []string{"ssh_exec"},
		Commands:    []string{"pvesh create /nodes/{node}/status"},
		Budget:      30 * time.Second,
		Runs:        "pvesh create /nodes/NODE/status --command reboot",
	},
	rebootNode,
)
