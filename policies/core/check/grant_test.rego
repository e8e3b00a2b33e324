package caponier.core.check.grant_test

import data.caponier.core.fixture as f

test_tool_outside_the_role_is_refused if {
	"grant" in f.failed(f.decided({"principal": {"id": "two"}, "tool": {"name": "kill"}}))
}

test_import_outside_the_role_is_refused if {
	"grant" in f.failed(f.decided({
		"principal": {"id": "two"},
		"tool": {"name": "look", "imports": ["ssh_exec", "sftp_put"]},
	}))
}

test_each_role_is_told_with_what_it_lacks if {
	d := f.decided({
		"principal": {"id": "two"}, "tool": {"name": "look", "imports": ["ssh_exec", "sftp_put"]},
	})
	reasons := ["role reader lacks the import sftp_put", "role wide lacks the import sftp_put"]
	contains(d.deny[0].msg, concat("; ", reasons))
	e := f.decided({"principal": {"id": "two"}, "tool": {"name": "kill"}})
	contains(
		e.deny[0].msg,
		concat("; ", [
			"role reader does not list tool:kill under tools",
			"role wide does not list tool:kill under tools",
		]),
	)
}

test_granted_tool_passes if f.decided({"principal": {"id": "two"}, "tool": {"name": "look"}}).allow

test_tool_outside_the_role_is_not_shown if {
	f.failed(f.seen({"principal": {"id": "two"}, "tool": {"name": "kill"}})) == {"grant"}
}

# Without a role for the tool, nothing is said about commands, nodes and tiers that only a role
# could grant.
test_refusal_of_a_tool_that_is_not_granted_names_the_tool_alone if {
	two := {
		"principal": {"id": "two", "credential_roles": ["reader"]}, "tool": {"name": "run"},
		"parent": {"tool": "run"},
	}
	q := object.union(two, {"commands": [f.cmd([["pvesh", "get", "/nodes/pve2/status"]])]})
	f.failed(f.decided(q)) == {"grant"}
	r := object.union(two, f.run(["pvesh", "get", "/nodes/pve2/status"]))
	f.failed(f.operated(r)) == {"grant"}
	s := object.union(two, {"commands": [f.cmd([["rm", "x"]])]})
	f.failed(f.decided(s)) == {"grant", "command"}
}

test_tool_without_a_tier_is_not_said_to_be_too_high if {
	f.failed(f.decided({"tool": {"name": "other"}})) == {"known"}
	f.failed(f.decided({"tool": {"name": "never"}})) == {"tier"}
}

kinds := {"tiers": {"resource:look": "green", "prompt:look": "green"}}

named(tools) := object.union(kinds, {"roles": {"wide": {"tools": tools}, "reader": {"tools": []}}})

# A name without a kind is a tool, and each kind is a right of its own.
test_roles_name_tools_with_their_kind if {
	every kind in ["tool", "resource", "prompt"] {
		two := {"kind": kind, "principal": {"id": "two"}, "tool": {"name": "look"}}
		every name in [sprintf("%s:look", [kind]), "*"] { f.decided_in(two, named([name])).allow }
		every other in {
			"tool:look", "resource:look", "prompt:look",
		} - {sprintf("%s:look", [kind])} {
			f.failed(f.decided_in(two, named([other]))) == {"grant"}
		}
	}
}

test_bare_name_is_a_tool_alone if {
	two := {"principal": {"id": "two"}, "tool": {"name": "look"}}
	f.decided_in(two, named(["look"])).allow
	every kind in ["resource", "prompt"] {
		f.failed(f.decided_in(object.union(two, {"kind": kind}), named(["look"]))) == {"grant"}
	}
}
