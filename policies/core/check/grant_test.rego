package caponier.core.check.grant_test

import data.caponier.core.fixture as f

test_tool_outside_the_role_is_refused if "grant" in f.failed(f.decided({"principal": {"id": "two"}, "tool": {"name": "kill"}}))

test_import_outside_the_role_is_refused if {
	"grant" in f.failed(f.decided({"principal": {"id": "two"}, "tool": {"name": "look", "imports": ["ssh_exec", "sftp_put"]}}))
}

test_each_role_is_told_with_what_it_lacks if {
	d := f.decided({"principal": {"id": "two"}, "tool": {"name": "look", "imports": ["ssh_exec", "sftp_put"]}})
	contains(d.deny[0].msg, "role reader lacks the import sftp_put; role wide lacks the import sftp_put")
	e := f.decided({"principal": {"id": "two"}, "tool": {"name": "kill"}})
	contains(e.deny[0].msg, "role reader does not list tool:kill under tools; role wide does not list tool:kill under tools")
}

test_granted_tool_passes if f.decided({"principal": {"id": "two"}, "tool": {"name": "look"}}).allow

test_tool_outside_the_role_is_not_shown if f.failed(f.seen({"principal": {"id": "two"}, "tool": {"name": "kill"}})) == {"grant"}

# Without a role for the tool, nothing is said about commands, nodes and tiers that only a role could grant.
test_who_is_not_granted_the_tool_is_told_that_alone if {
	two := {"principal": {"id": "two", "credential_roles": ["reader"]}, "tool": {"name": "run"}, "parent": {"tool": "run"}}
	f.failed(f.decided(object.union(two, {"commands": [f.cmd([["pvesh", "get", "/nodes/pve2/status"]])]}))) == {"grant"}
	f.failed(f.operated(object.union(two, f.run(["pvesh", "get", "/nodes/pve2/status"])))) == {"grant"}
	f.failed(f.decided(object.union(two, {"commands": [f.cmd([["rm", "x"]])]}))) == {"grant", "command"}
}

test_tool_without_a_tier_is_not_said_to_be_too_high if {
	f.failed(f.decided({"tool": {"name": "other"}})) == {"known"}
	f.failed(f.decided({"tool": {"name": "never"}})) == {"tier"}
}
