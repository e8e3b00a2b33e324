package caponier.core.use_test

import data.caponier.core.fixture as f
import data.caponier.core.use

of(base, change) := got if {
	got := use.of with input as object.union(base, change) with data.site as f.site
}

test_a_call_uses_its_tool_and_nodes if {
	u := of(f.a_call, {})
	[u.tool, u.tier, u.roles, u.nodes, u.commands] == ["stop", "yellow", ["operator"], ["pve1"], []]
	["roles", "operator", "tools", "*"] in u.entries
	["roles", "operator", "nodes", "*"] in u.entries
	["tiers", "tool:stop"] in u.entries
	["principals", "ann", "auth", "token"] in u.entries
	not ["relaxed", "vmids", "104"] in u.entries
}

test_an_operation_uses_its_commands if {
	u := of(f.an_operation, f.run(["pct", "stop", "105"]))
	u.commands == ["pct stop"]
	["roles", "operator", "commands", "*"] in u.entries
}

test_the_role_is_the_one_that_grants_all if {
	call := {"principal": {"id": "two"}, "tool": {"name": "look"}, "targets": {"nodes": ["pve2"]}}
	u := of(f.a_call, call)
	[u.roles, u.nodes] == [["wide"], ["pve2"]]
	not ["roles", "reader"] in u.entries
}

test_a_resource_is_named_with_its_kind if {
	q := object.union(f.a_call, {"kind": "resource", "tool": {"name": "look"}})
	tiers := {"tiers": {"resource:look": "green"}}
	u := use.of with input as q with data.site as object.union(f.site, tiers)
	[u.tool, u.tier] == ["resource:look", "green"]
}

test_what_nobody_grants_uses_no_role if of(f.a_call, {"principal": {"id": "eve"}}).roles == []

test_files_hosts_and_programs_are_entries if {
	file := {"action": "read", "path": "/var/log/x"}
	["files", "read", "/var/log"] in of(f.an_operation, {"file": file}).entries
	["egress", "api.example.com"] in of(f.an_operation, f.with_http({})).entries
	program := of(f.an_operation, f.run(["mytool", "show", "105"]))
	["binaries", "mytool", "show"] in program.entries
}

test_relaxed_guests_are_entries if {
	u := of(f.a_call, {"tool": {"name": "kill"}, "targets": {"vmids": ["104"]}})
	{["relaxed", "vmids", "104"], ["relaxed", "tools", "kill"]} - {e | some e in u.entries} == set()
}
