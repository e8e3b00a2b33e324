# METADATA
# scope: package
# description: >-
#   A small site, a call and operations that pass, for the tests to change one thing at a time.
package caponier.core.fixture

import data.caponier.core.call
import data.caponier.core.lint
import data.caponier.core.operation
import data.caponier.core.operations
import data.caponier.core.plan
import data.caponier.core.visible

site := {
	"principals": {
		"ann": {"auth": ["token"], "roles": ["operator"]},
		"two": {"auth": ["token"], "roles": ["reader", "wide"]},
	},
	"claimable_roles": ["reader"],
	"roles": {
		"operator": {
			"tools": ["*"], "imports": all_imports, "ceiling": "red", "nodes": ["*"],
			"commands": ["*"],
		},
		"reader": {
			"tools": ["stop", "look"], "imports": ["ssh_exec"], "ceiling": "green",
			"nodes": ["pve1"], "commands": ["read"],
		},
		"wide": {
			"tools": ["look"], "imports": ["ssh_exec"], "ceiling": "red", "nodes": ["*"],
			"commands": ["*"],
		},
	},
	"tiers": {
		"tool:stop": "yellow", "tool:look": "green", "tool:kill": "red", "tool:never": "black",
		"tool:run": "yellow",
		"tool:upload": "yellow", "tool:fetch": "yellow", "tool:host": "red", "tool:wake": "yellow",
	},
	"protected": {
		"nodes": {
			"agent1": {"reason": "runs this host"},
			"quiet": {"reason": "looked at only", "reads": "allow"},
		},
		"vmids": {
			"103": {"reason": "management VM"},
			"107": {"reason": "looked at only", "reads": "allow"},
		},
		"hosts": {"192.168.1.61": {"reason": "agent1 by its address"}},
		"services": [
			{"service": "docker", "nodes": ["pve1"], "reason": "container runtime"},
			{"service": "corosync.service", "nodes": ["*"], "reason": "the cluster"},
		],
	},
	"commands": {"lifecycle": {"tier": "yellow"}, "qm stop": {"tier": "red"}},
	"relaxed": {"vmids": ["104"], "tools": ["kill"]},
	"binaries": {
		"mytool": {
			"show": {
				"group": "read", "tier": "green", "operands": ["vmid"],
				"options": {"--deep": "flag"},
			},
		},
	},
	"shell_features": ["pipe", "and"],
	"guest_commands": "any",
	"files": {"read": ["/var/log", "/etc/hosts"], "write": ["/srv/in"], "max_bytes": 1000},
	"egress": {
		"api.example.com": {
			"schemes": ["https"], "ports": [443], "methods": ["GET", "POST"], "classes": ["global"],
			"max_hops": 2, "max_body_bytes": 100,
		},
	},
	"limits": {
		"argument_bytes": 1000, "calls_per_minute": 10, "tool_calls_per_minute": 10,
		"target_calls_per_minute": 5, "usd_micros_per_day": 100,
		"blob_bytes": 1000, "ask_bytes": 100, "timeout_ms": 0, "output_bytes": 0,
	},
	"approval": {"argument": false, "channels": ["cli", "web"], "approvers": ["*"]},
	"redact": ["password"],
}

all_imports := [name | some name, op in operations.table; op.plugins]

# What a tool of the tests declares that declares everything; check declared has tests of its own.
all_commands := array.concat(
	[
		"mytool show", "mytool purge", "talk",
	],
	[id | some id, _ in lint.entries],
)

head := {
	"id": "q1", "kind": "tool", "time": {
		"unix_ms": 1, "hour_utc": 10, "minute_utc": 0, "weekday": 5,
	},
	"source": "http",
	"principal": {
		"id": "ann", "auth": "token", "roles": [], "credential_roles": [], "narrowed": false,
	},
	"plugin": {"name": "p", "version": "1.0.0", "digest": "sha256:00"},
	"tool": {
		"name": "stop", "imports": ["ssh_exec"], "commands": all_commands,
		"target_kinds": ["vmids"],
		"hints": {
			"read_only": false, "destructive": true, "idempotent": false, "open_world": false,
		},
	},
	"planning": false,
	"guests": null,
	"mode": {"read_only": false, "freezes": []},
}

targets := {
	"nodes": ["pve1"], "vmids": ["105"], "services": [], "hosts": [], "paths": [],
	"guest_paths": [], "local_paths": [],
}

inventory := [
	{
		"name": "pve1", "cluster": "lab", "host": "192.168.1.74", "aliases": [],
	},
	{"name": "pve2", "cluster": "lab", "host": "192.168.1.75", "aliases": []},
	{
		"name": "agent1", "cluster": "lab", "host": "192.168.1.61", "aliases": [],
	},
	{"name": "far", "cluster": "other", "host": "10.9.9.9", "aliases": []},
	{"name": "alone", "cluster": "", "host": "10.9.9.1", "aliases": []}, {
		"name": "alone2", "cluster": "", "host": "10.9.9.2", "aliases": [],
	},
]

a_call := object.union(head, {
	"schema": "caponier.call/1",
	"args": {"digest": "sha256:11", "bytes": 12, "scalars": {"vmid": 105}, "omitted": []},
	"targets": targets, "nodes": inventory, "commands": [],
	"confirmation": {"state": "none", "by": "", "channel": ""},
	"facts": {
		"calls_60s": 1, "tool_calls_60s": 1, "target_calls_60s": 1, "calls_retry_s": 60,
		"tool_retry_s": 60, "target_retry_s": 60,
		"usd_micros_today": 0,
	},
})

# An operation without its part: merge one of command, file, http, blob, ask into it.
an_operation := object.union(head, {
	"schema": "caponier.operation/1",
	"args": {"digest": "sha256:11", "bytes": 12, "scalars": {"vmid": 105}, "omitted": []},
	"op": "ssh_exec", "phase": "effect",
	"parent": {
		"id": "c1", "tool": "stop", "tier": "yellow", "targets": targets, "clusters": ["lab"],
		"commands": [],
		"stages": [
			{"node": "pve1", "dir": "/run/caponier/s1"},
		],
		"confirmation": {"state": "none", "by": "", "channel": ""}, "revision": "r1",
	},
	"target": {
		"node": "pve1", "cluster": "lab", "host": "192.168.1.74", "port": 22, "user": "root",
		"addrs": [], "services": [],
	},
	"nodes": inventory,
	"command": null, "file": null, "http": null, "blob": null, "ask": null, "record": null,
	"listing": null, "plan": null,
	"touches": null,
})

cmd(calls) := {
	"form": "argv", "arg": "", "guest": false, "text": "", "rendered": "", "parsed": true,
	"error": "", "features": [], "nested": [],
	"calls": [{
		"argv": argv, "static": true,
	} |
		some argv in calls
	],
	"stdin": {"bytes": 0, "sha256": ""},
}

run(argv) := {"command": cmd([argv])}

# A text for a guest that could be parsed, with its rendering, and one that could not.
guest_cmd(text, rendered, calls) := object.union(cmd(calls), {
	"form": "script", "arg": "command", "guest": true, "text": text, "rendered": rendered,
})

raw_cmd(text) := object.union(guest_cmd(text, "", []), {"parsed": false, "error": "not plain"})

# A file operation of a tool that may do them all.
with_file(op, tool, tier, f) := {
	"op": op, "tool": {
		"name": tool, "imports": all_imports,
		"target_kinds": ["vmids", "guest_paths", "local_paths"],
	},
	"parent": {
		"tool": tool, "tier": tier,
		"targets": {"guest_paths": ["/root/x"], "local_paths": ["in/x"]},
	},
	"file": object.union(
		{
			"path": "/run/caponier/s1/file", "real_path": "/run/caponier/s1/file", "local": null,
			"bytes": 10, "sha256": null,
			"mode": "", "type": "", "exists": false, "overwrite": false, "parents": false,
			"current_mode": 0,
		},
		f,
	),
}

with_http(f) := {
	"op": "http_request", "target": null, "tool": {
		"name": "fetch", "imports": ["http_request"], "target_kinds": ["hosts"],
	},
	"parent": {"tool": "fetch", "targets": {"hosts": ["api.example.com"]}},
	"http": object.union(
		{
			"method": "GET", "scheme": "https", "host": "api.example.com", "port": 443, "path": "/",
			"addrs": [{"ip": "93.184.216.34", "class": "global"}],
			"hop": 0, "query": "", "headers": [], "body_bytes": 0, "body_sha256": "sha256:00",
			"credential": "", "reserve_usd_micros": 0,
		},
		f,
	),
}

no_rules := {"call": {"deny": set()}, "operation": {"deny": set()}, "plan": {"deny": set()}}

# A plan of one step.
a_plan := object.union(head, {
	"schema": "caponier.plan/1",
	"args": {"digest": "sha256:11", "bytes": 12, "scalars": {"vmid": 105}, "omitted": []},
	"targets": targets, "nodes": inventory,
	"digest": "sha256:aa", "complete": true, "ends": "",
	"steps": [{
		"op": "ssh_exec", "tier": "red", "allowed": true, "failed": [],
		"target": an_operation.target, "command": cmd([["pct", "stop", "105"]]), "file": null,
		"http": null, "blob": null,
	}],
})

planned(change) := planned_with(change, {}, no_rules)

planned_with(change, sites, rules) := d if {
	d := plan.decision with input as object.union(a_plan, change)
		with data.site as object.union(site, sites)
		with data.caponier.site as rules
}

decided(change) := decided_in(change, {})

decided_in(change, sites) := d if {
	d := call.decision with input as object.union(a_call, change)
		with data.site as object.union(site, sites)
		with data.caponier.site as no_rules
		with data.caponier.core.tables.programs as {"operator": {"cat", "pct"}}
}

operated(change) := operated_in(change, {})

operated_in(change, sites) := d if {
	d := operation.decision with input as object.union(an_operation, change)
		with data.site as object.union(site, sites)
		with data.caponier.site as no_rules
		with data.caponier.core.tables.programs as {"operator": {"cat", "pct"}}
}

a_visible := object.union(head, {
	"schema": "caponier.visible/1", "targets": object.union(targets, {"nodes": [], "vmids": []}),
})

seen(change) := d if {
	d := visible.decision with input as object.union(a_visible, change) with data.site as site
}

failed(decision) := {id | some id in decision.failed}

tool(name) := {"tool": {"name": name}, "parent": {"tool": name}}
