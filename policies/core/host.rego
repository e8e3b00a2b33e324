# METADATA
# scope: package
# description: >-
#   What the host itself may do, as the principal "host" - its tools, each with its tier and with
#   the operations and commands that it may ask for. A site can refuse more of it, and grant none.
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

# How the host finds a guest, and what snapshots it has and can have.
looks := [
	"pvesh get /cluster/resources",
	"pvesh get /nodes/{node}/lxc/{vmid}/feature", "pvesh get /nodes/{node}/qemu/{vmid}/feature",
	"pvesh get /nodes/{node}/lxc/{vmid}/snapshot", "pvesh get /nodes/{node}/qemu/{vmid}/snapshot",
]

# claimed says that the question claims to be of the host in some way, itself that it is in every
# way. What is claimed only is nobody's: no role is held in it.
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

# granted says that the tool is one of the host's, and no more than that.
granted if {
	itself
	tool := tools[input.tool.name]
	every needed in input.tool.imports { needed in tool.imports }
	every c in input.tool.commands { c in tool.commands }
}

# clear says that an operation of the tool runs only commands of the table.
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

# A snapshot of the host is named after the call that it was taken for.
own_snapshot(name) if regex.match(`^caponier-[0-9a-v]{26}$`, name)

# looks_at says that a file operation reads what calls may replace.
looks_at if {
	granted
	input.file.action in {"stat", "read"}
	files.writable(input.file.path)
	input.file.path in input.parent.targets.paths
}

# discards says that a file operation removes something temporary by a name that the host makes.
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
