package caponier.core.check.role_test

import data.caponier.core.fixture as f

# One role reaches the node, the other goes as high: neither alone does both.
apart := {"roles": {
	"reader": {"tools": ["stop"], "ceiling": "red", "nodes": ["pve1"], "commands": ["*"]},
	"wide": {"tools": ["stop"], "ceiling": "green", "nodes": ["*"], "commands": ["*"]},
}}

test_two_roles_are_not_added_together_for_a_call if {
	f.failed(f.decided_in(
		{
			"principal": {"id": "two"}, "targets": {"nodes": ["pve2"]},
		},
		apart,
	)) == {"role"}
}

test_two_roles_are_not_added_together_for_an_operation if {
	q := f.run(["pct", "stop", "105"])
	stop := object.union({"principal": {"id": "two"}, "target": {"node": "pve2"}}, q)
	f.failed(f.operated_in(stop, apart)) == {"role"}
}

test_one_role_that_has_all_passes if {
	f.decided_in({"principal": {"id": "two"}}, apart).allow
	q := object.union({"principal": {"id": "two"}}, f.run(["pct", "stop", "105"]))
	f.operated_in(q, apart).allow
}
