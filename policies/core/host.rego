# METADATA
# scope: package
# description: >-
#   What the host itself may do, as the principal "host" - its tools, each with its tier and with
#   the operations and commands that it may ask for. A site can only refuse more.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.host

import data.caponier.core.command
import data.caponier.core.files

# The tools of the host, by name.
tools := {
	"remove_leftovers": {"tier": "yellow", "imports": ["discard"], "commands": []},
	"take_snapshot": {
		"tier": "yellow", "imports": ["ssh_exec"],
		"commands": array.concat(looks, ["pct snapshot", "qm snapshot"]),
	},
	"read_cluster": {
		"tier": "green", "imports": ["ssh_exec"],
		"commands": ["pvesh get /cluster/resources", "pvesh get /cluster/status"],
	},
	"look_at": {
		"tier": "green", "imports": ["ssh_exec", "sftp_stat", "sftp_read"],
		"commands": [
			"pvesh get /cluster/resources",
			"pvesh get /nodes/{node}/lxc/{vmid}/status/current",
			"pvesh get /nodes/{node}/qemu/{vmid}/status/current",
			"pvesh get /nodes/{node}/lxc/{vmid}/config",
			"pvesh get /nodes/{node}/qemu/{vmid}/config", "systemctl show",
		],
	},
	"prune_snapshot": {
		"tier": "red", "imports": ["ssh_exec"],
		"commands": array.concat(looks, ["pct delsnapshot", "qm delsnapshot"]),
	},
}

# The commands with which the host finds a guest and its snapshots.
looks := [
	"pvesh get /cluster/resources",
	"pvesh get /nodes/{node}/lxc/{vmid}/feature", "pvesh get /nodes/{node}/qemu/{vmid}/feature",
	"pvesh get /nodes/{node}/lxc/{vmid}/snapshot", "pvesh get /nodes/{node}/qemu/{vmid}/snapshot",
]

# claimed is true if any field of the question says "host", and itself if all of them do. A question
# that is only claimed holds no role.
claimed if input.principal.id == "host"

claimed if input.principal.auth == "host"

claimed if input.source == "host"

claimed if input.kind == "host"

itself if {
	input.kind == "host"
	input.source == "host"
	input.principal.auth == "host"
	input.principal.id == "host"
}

# granted is true if the tool is one of the host's, with no more than its entry.
granted if {
	itself
	tool := tools[input.tool.name]
	every needed in input.tool.imports { needed in tool.imports }
	every c in input.tool.commands { c in tool.commands }
}

# clear is true if an operation of the tool runs only commands of the table.
clear if {
	granted
	input.schema != "caponier.operation/1"
}

clear if {
	granted
	input.schema == "caponier.operation/1"
	every d in command.operation_described {
		d.id in tools[input.tool.name].commands
		every name in [w | some ["snapname", w] in d.words] { own_snapshot(name) }
	}
}

# The name of a host's snapshot contains the id of its call.
own_snapshot(name) if regex.match(`^caponier-[0-9a-v]{26}$`, name)

# looks_at is true if a file operation reads a file that calls may replace.
looks_at if {
	granted
	input.file.action in {"stat", "read"}
	files.writable(input.file.path)
	input.file.path in input.parent.targets.paths
}

# discards is true if a file operation removes something temporary whose name the host made.
discards if {
	granted
	input.file.action == "discard"
	regex.match(forms[input.target != null], input.file.path)
	every s in split(input.file.path, "/") { not s in {".", ".."} }
}

# On a node, and in the workspace: host, process and a random part.
forms := {
	true: `^(/[^/\x00-\x1F\x7F]+)*/(caponier-|\.caponier-partial-)[0-9a-f]{32}$`,
	false: `^([^/\x00-\x1F\x7F]+/)+\.caponier-partial-[0-9a-f]{32}$`,
}
