package caponier.core.refusals_test

import data.caponier.core.fixture as f

# Refusals as they are read. Each says what was refused, by which rule and entry, and what would
# work, in at most 600 bytes together.
refusals["a protected guest"] := f.decided({"targets": {"vmids": ["103"]}})
refusals["a protected guest in a command"] := call([["pct", "stop", "103"]])

refusals["a protected guest in a path"] := op(["cat", "/etc/pve/lxc/103.conf"])

refusals["a protected node"] := f.decided({"targets": {"nodes": ["agent1"]}})

refusals["a protected service"] := f.decided({"targets": {"services": ["docker"]}})

refusals["a protected address"] := f.decided({"targets": {"hosts": ["192.168.1.61"]}})

refusals["a protected guest, approved"] := f.decided({
	"targets": {"vmids": ["103"]},
	"confirmation": {"state": "approved", "by": "bob", "channel": "cli"},
})

refusals["everything is frozen"] := f.decided({"mode": {"frozen": true, "reason": "an incident"}})

refusals["a node is frozen"] := f.decided({"mode": {"freezes": [frozen("node", "pve1")]}})

refusals["a principal is frozen"] := f.decided({"mode": {"freezes": [frozen("principal", "ann")]}})

refusals["read-only"] := f.decided({"mode": {"read_only": true}})

refusals["an unknown principal"] := f.decided({"principal": {"id": "eve"}})

refusals["a credential without roles"] := f.decided({"principal": {"narrowed": true}})

refusals["a tool of no role"] := f.decided({"principal": {"id": "two"}, "tool": {"name": "kill"}})

refusals["an import of no role"] := f.decided({
	"principal": {"id": "two"},
	"tool": {"name": "look", "imports": ["ssh_exec", "sftp_put"]},
})

refusals["a tool that is off"] := f.decided({"tool": {"name": "new"}})

refusals["a black tool"] := f.decided({"tool": {"name": "never"}})

refusals["a black command"] := call([["reboot"]])

refusals["a red service in a yellow call"] := f.operated(object.union(
	f.run(["systemctl", "restart", "--", "ssh.service"]),
	{
		"tool": {"name": "host"},
		"parent": {"tool": "host", "tier": "yellow", "targets": {"services": ["ssh.service"]}},
	},
))

refusals["an unknown node"] := op(["pvesh", "get", "/nodes/evil/status"])

refusals["a node of no role"] := f.decided(object.union(reader, {"targets": {"nodes": ["pve2"]}}))

refusals["a tier above the role"] := f.decided(object.union(reader, {"tool": {"name": "stop"}}))

refusals["two roles"] := f.decided_in(
	{
		"principal": {"id": "two"}, "targets": {"nodes": ["pve2"]},
	},
	{"roles": {
		"reader": {"tools": ["stop"], "ceiling": "red", "nodes": ["pve1"], "commands": ["*"]},
		"wide": {"tools": ["stop"], "ceiling": "green", "nodes": ["*"], "commands": ["*"]},
	}},
)

refusals["no target"] := f.decided({"targets": {"vmids": []}})

refusals["a target in another form"] := f.decided({"targets": {"vmids": ["0105"]}})

refusals["an unknown program"] := call([["docker", "ps"]])

refusals["an unknown option"] := call([["zpool", "status", "-q"]])

refusals["a command of no role"] := f.operated(object.union(
	object.union(reader, {"parent": {"tool": "look"}}),
	f.run(["tail", "/var/log/syslog"]),
))

refusals["text that a shell would expand"] := f.decided({
	"tool": {"name": "run"},
	"commands": [object.union(f.cmd([]), {"parsed": false, "error": "a redirection at 1:8"})],
})

refusals["a joiner"] := f.decided({
	"tool": {"name": "run"},
	"commands": [object.union(f.cmd([["uptime"]]), {"features": ["or"]})],
})

refusals["a path"] := call([["cat", "/root/x"]])

refusals["a file in no folder"] := f.operated(f.with_file("sftp_read", "upload", "yellow", {
	"action": "read", "path": "/opt/x", "real_path": "/opt/x", "type": "file",
}))

refusals["a file that exists"] := f.operated(f.with_file("sftp_put", "upload", "yellow", {
	"action": "put", "local": "in/x", "exists": true, "type": "file",
}))

refusals["a host"] := f.decided({"targets": {"hosts": ["evil.com"]}})

refusals["an address of another class"] := f.operated(f.with_http({"addrs": [{
	"ip": "10.0.0.1",
	"class": "private",
}]}))

refusals["a method"] := f.operated(f.with_http({"method": "DELETE"}))

refusals["another guest than the call's"] := op(["pct", "stop", "106"])

refusals["a command that is not declared"] := f.operated(object.union(
	{"tool": {"commands": ["pct start"]}},
	f.run(["pct", "stop", "105"]),
))

refusals["large arguments"] := f.decided({"args": {"bytes": 5000}})

refusals["too many calls"] := f.decided({"facts": {"calls_60s": 11, "calls_retry_s": 7}})

refusals["money"] := f.decided({"facts": {"usd_micros_today": 1000}})

refusals["a red call"] := f.decided({"tool": {"name": "kill"}})

refusals["a large blob"] := f.operated({
	"op": "blob_write", "target": null, "tool": {"imports": ["blob_write"]},
	"blob": {"action": "write", "name": "x", "mime": "a/b", "bytes": 2000, "ttl_s": 1},
})

refusals["many reasons"] := f.decided({
	"targets": {"vmids": ["103"], "hosts": ["evil.com"], "paths": ["/opt/x"]},
	"args": {"bytes": 5000}, "facts": {"calls_60s": 11}, "mode": {"read_only": true},
})

reader := {"principal": {"id": "two", "credential_roles": ["reader"]}, "tool": {"name": "look"}}

frozen(kind, name) := {"kind": kind, "name": name, "reason": "an incident"}

call(calls) := f.decided({"tool": {"name": "run"}, "commands": [f.cmd(calls)]})

op(argv) := f.operated(f.run(argv))

told := {name: [r.msg | some r in d.deny] | some name, d in refusals}

# What somebody who has only the refusal reads.
test_refusals_are_these if {
	every name, said in golden { told[name] == [concat(" · ", parts) | some parts in said] }
	count(golden) == count(refusals)
}

test_refusals_are_short if {
	every _, msgs in told { count(concat("; ", msgs)) <= 580 }
}

# No approval, other call or later time lifts these, so none is proposed.
test_what_stays_refused_proposes_no_way_round if {
	stays := {
		"a black tool", "a black command",
	} | {n | some n, _ in told; startswith(n, "a protected")}
	every name in stays {
		every word in ["approv", "again", "retry", "the same call", "seconds", "tomorrow"] {
			not contains(told[name][0], word)
		}
	}
	every name in {n | some n, _ in told; n != "a red call"} { refusals[name].confirm == false }
}

golden := {
	"a black command": [
		["reboot is black", "tiers/tool:run", "nothing: what is black never runs"],
	],
	"a black tool": [
		["tool:never is black", "tiers/tool:never", "nothing: what is black never runs"],
	],
	"a command of no role": [
		[
			"none of your roles may run \"tail\" (group files)",
			"the command grammar, roles/NAME/commands", "programs that you may run: none",
		],
	],
	"a command that is not declared": [
		[
			"stop runs pct stop, and declares pct start", "plugins.lock: commands of the tool",
			"another tool; only the plugin's author can declare the command, for a review",
		],
	],
	"a credential without roles": [
		[
			"ann (by token) holds no role here", "principals/ann in the site's data",
			"nothing that you can do; the operator gives roles",
		],
	],
	"a file in no folder": [
		[
			"/opt/x is in no folder that the site lists for this; it really is /opt/x, which is elsewhere",
			"files/read, files/write and files/max_bytes, and the call's paths",
			"a path that the call names, in a folder that the site lists",
		],
	],
	"a file that exists": [
		[
			"it is there already, and overwriting was not asked for",
			"files/read, files/write and files/max_bytes, and the call's paths",
			"the same call with overwrite, or another name",
		],
	],
	"a host": [
		["host evil.com is not listed", "egress", "hosts that the site lists: api.example.com"],
	],
	"a joiner": [
		[
			"the shell feature or is not granted here", "the command grammar, roles/NAME/commands",
			"programs that you may run: cat, pct",
		],
	],
	"a large blob": [
		["a blob of 2000 bytes is over the limit of 1000", "limits/blob_bytes", "a smaller one"],
	],
	"a method": [
		[
			"DELETE https://api.example.com:443 is not among GET,POST https 443",
			"egress/api.example.com", "hosts that the site lists: api.example.com",
		],
	],
	"a node is frozen": [
		[
			"node pve1 is frozen: an incident", "freeze",
			"nothing until an operator ends the freeze; do not repeat the call",
		],
	],
	"a node of no role": [
		[
			"node pve2 is out of reach of your roles", "roles/reader/nodes",
			"nodes that you may use: pve1",
		],
	],
	"a path": [
		[
			"path /root/x is outside what the call and the site allow", "files/read, files/write",
			"in commands, these and what lies directly in them: /etc/hosts, /var/log",
		],
	],
	"a principal is frozen": [
		[
			"principal ann is frozen: an incident", "freeze",
			"nothing until an operator ends the freeze; do not repeat the call",
		],
	],
	"a protected address": [
		[
			"host 192.168.1.61 is protected: agent1 by its address", "protected/hosts/192.168.1.61",
			"it stays refused, whatever is confirmed; choose another target",
		],
		["host 192.168.1.61 is not listed", "egress", "hosts that the site lists: api.example.com"],
	],
	"a protected guest": [
		[
			"guest 103 is protected: management VM", "protected/vmids/103",
			"it stays refused, whatever is confirmed; choose another target",
		],
	],
	"a protected guest in a command": [
		[
			"guest 103 is protected: management VM", "protected/vmids/103",
			"it stays refused, whatever is confirmed; choose another target",
		],
	],
	"a protected guest in a path": [
		[
			"guest 103 is protected: management VM", "protected/vmids/103",
			"it stays refused, whatever is confirmed; choose another target",
		],
		[
			"path /etc/pve/lxc/103.conf is outside what the call and the site allow",
			"files/read, files/write",
			"in commands, these and what lies directly in them: /etc/hosts, /var/log",
		],
	],
	"a protected guest, approved": [
		[
			"guest 103 is protected: management VM", "protected/vmids/103",
			"it stays refused, whatever is confirmed; choose another target",
		],
	],
	"a protected node": [
		[
			"host 192.168.1.61 is protected: agent1 by its address; node agent1 is protected: runs this host",
			"protected/hosts/192.168.1.61, protected/nodes/agent1",
			"it stays refused, whatever is confirmed; choose another target",
		],
	],
	"a protected service": [
		[
			"service docker.service is protected: container runtime",
			"protected/services/docker.service",
			"it stays refused, whatever is confirmed; choose another target",
		],
	],
	"a red call": [
		[
			"kill is red here and needs a person's approval",
			"tiers/tool:kill, approval/channels, approval/approvers",
			"ask for approval, then make the same call again",
		],
	],
	"a red service in a yellow call": [
		[
			"ssh.service is red and host is yellow", "tiers/tool:host",
			"a command of a lower tier; only the operator can raise the tool's tier",
		],
	],
	"a target in another form": [
		[
			"targets are not in their canonical form: \"0105\"", "the tool's declared targets",
			"name each target that the tool's schema asks for, in full",
		],
	],
	"a tier above the role": [
		[
			"this is yellow, and your roles go up to green", "roles/reader/ceiling",
			"a tool or command of a lower tier",
		],
	],
	"a tool of no role": [
		[
			"role reader does not list tool:kill under tools; role wide does not list tool:kill under tools",
			"roles/reader, roles/wide", "another tool; only the operator can grant this one",
		],
	],
	"a tool that is off": [
		[
			"tool:new has no tier, so it is switched off", "tiers in the site's data",
			"another tool; only the operator can switch this one on",
		],
	],
	"an address of another class": [
		[
			"address 10.0.0.1 is private, and listed are global", "egress/api.example.com",
			"hosts that the site lists: api.example.com",
		],
	],
	"an import of no role": [
		[
			"role reader lacks the import sftp_put; role wide lacks the import sftp_put",
			"roles/reader, roles/wide", "another tool; only the operator can grant this one",
		],
	],
	"an unknown node": [
		[
			"node evil is not known here", "cluster_nodes in the site's data, and the inventory",
			"nodes that you may use: alone, alone2, far, pve1, pve2",
		],
	],
	"an unknown option": [
		[
			"\"zpool status\" does not take \"-q\"; it takes ZPOOL* -D -L -P -g -i -p -s -t -v -x",
			"the command grammar, roles/NAME/commands", "programs that you may run: cat, pct",
		],
	],
	"an unknown principal": [
		[
			"eve (by token) holds no role here", "principals/eve in the site's data",
			"nothing that you can do; the operator gives roles",
		],
	],
	"an unknown program": [
		[
			"\"docker\" is not a command that policy knows",
			"the command grammar, roles/NAME/commands", "programs that you may run: cat, pct",
		],
	],
	"another guest than the call's": [
		["106 is not what this call named", "the call's targets", "another call that names it"],
	],
	"everything is frozen": [
		[
			"everything is frozen: an incident", "freeze",
			"nothing until an operator ends the freeze; do not repeat the call",
		],
	],
	"large arguments": [
		[
			"the arguments have 5000 bytes, over the limit of 1000", "limits/argument_bytes",
			"smaller arguments; large data as a file",
		],
	],
	"many reasons": [
		[
			"guest 103 is protected: management VM", "protected/vmids/103",
			"it stays refused, whatever is confirmed; choose another target",
		],
		["the host is read-only, and this is yellow", "read-only mode", "green tools and commands"],
		[
			"path /opt/x is outside what the call and the site allow", "files/read, files/write",
			"in commands, these and what lies directly in them: /etc/hosts, /var/log",
		],
		["host evil.com is not listed", "egress", "hosts that the site lists: api.example.com"],
	],
	"money": [
		[
			"1000 millionths of a dollar are spent today, of 100", "limits/usd_micros_per_day",
			"the same call tomorrow (UTC)",
		],
	],
	"no target": [
		[
			"targets are missing: vmids", "the tool's declared targets",
			"name each target that the tool's schema asks for, in full",
		],
	],
	"read-only": [
		["the host is read-only, and this is yellow", "read-only mode", "green tools and commands"],
	],
	"text that a shell would expand": [
		[
			"it was not understood: a redirection at 1:8",
			"the command grammar, roles/NAME/commands",
			"write the commands in full; pipes, && and || are fine where the site grants them",
		],
	],
	"too many calls": [
		[
			"too many calls in a minute: 11, 1 of this tool, 1 on this target",
			"limits/calls_per_minute", "the same call in 7 seconds",
		],
	],
	"two roles": [
		[
			"no single role grants tool, node, tier and commands together",
			"roles/reader, roles/wide", "a call that one of these roles covers alone",
		],
	],
}
