package caponier.core.refusals_test

import data.caponier.core.fixture as f

# What this principal is not granted.
refusals["an unknown principal"] := f.decided({"principal": {"id": "eve"}})

golden["an unknown principal"] := [
	[
		"eve (by token) holds no role here", "principals/eve in the site's data",
		"nothing that you can do; the operator gives roles",
	],
]

refusals["a credential without roles"] := f.decided({"principal": {"narrowed": true}})

golden["a credential without roles"] := [
	[
		"ann (by token) holds no role here", "principals/ann in the site's data",
		"nothing that you can do; the operator gives roles",
	],
]

refusals["a tool of no role"] := f.decided({"principal": {"id": "two"}, "tool": {"name": "kill"}})

golden["a tool of no role"] := [
	[
		concat("; ", [
			"role reader does not list tool:kill under tools",
			"role wide does not list tool:kill under tools",
		]),
		"roles/reader, roles/wide", "another tool; only the operator can grant this one",
	],
]

refusals["an import of no role"] := f.decided({
	"principal": {"id": "two"},
	"tool": {"name": "look", "imports": ["ssh_exec", "sftp_put"]},
})

golden["an import of no role"] := [
	[
		"role reader lacks the import sftp_put; role wide lacks the import sftp_put",
		"roles/reader, roles/wide", "another tool; only the operator can grant this one",
	],
]

refusals["a tool that is off"] := f.decided({"tool": {"name": "new"}})

golden["a tool that is off"] := [
	[
		"tool:new has no tier, so it is switched off", "tiers in the site's data",
		"another tool; only the operator can switch this one on",
	],
]

refusals["a red service in a yellow call"] := f.operated(object.union(
	f.run(["systemctl", "restart", "--", "ssh.service"]),
	{
		"tool": {"name": "host"},
		"parent": {"tool": "host", "tier": "yellow", "targets": {"services": ["ssh.service"]}},
	},
))

golden["a red service in a yellow call"] := [
	[
		"ssh.service is red and host is yellow", "tiers/tool:host",
		"a command of a lower tier; only the operator can raise the tool's tier",
	],
]

refusals["an unknown node"] := op(["pvesh", "get", "/nodes/evil/status"])

golden["an unknown node"] := [
	[
		"node evil is not known here", "cluster_nodes in the site's data, and the inventory",
		"nodes that you may use: alone, alone2, far, pve1, pve2",
	],
]

refusals["a node of no role"] := f.decided(object.union(reader, {"targets": {"nodes": ["pve2"]}}))

golden["a node of no role"] := [
	[
		"node pve2 is out of reach of your roles", "roles/reader/nodes",
		"nodes that you may use: pve1",
	],
]

refusals["a tier above the role"] := f.decided(object.union(reader, {"tool": {"name": "stop"}}))

golden["a tier above the role"] := [
	[
		"this is yellow, and your roles go up to green", "roles/reader/ceiling",
		"a tool or command of a lower tier",
	],
]

refusals["two roles"] := f.decided_in(
	{
		"principal": {"id": "two"}, "targets": {"nodes": ["pve2"]},
	},
	{"roles": {
		"reader": {"tools": ["stop"], "ceiling": "red", "nodes": ["pve1"], "commands": ["*"]},
		"wide": {"tools": ["stop"], "ceiling": "green", "nodes": ["*"], "commands": ["*"]},
	}},
)

golden["two roles"] := [
	[
		"no single role grants tool, node, tier, commands and what is named together, at this time",
		"roles/reader, roles/wide", "a call that one of these roles covers alone",
	],
]

refusals["a red call"] := f.decided({"tool": {"name": "kill"}})

golden["a red call"] := [
	[
		"kill is red here and needs a person's approval",
		"tiers/tool:kill, approval/channels, approval/approvers",
		"ask for approval, then make the same call again",
	],
]
