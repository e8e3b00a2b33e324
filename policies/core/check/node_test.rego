package caponier.core.check.node_test

import data.caponier.core.fixture as f

test_call_on_a_node_outside_the_role_is_refused if {
	"node" in f.failed(f.decided_in(
		{
			"principal": {"id": "two", "credential_roles": ["reader"]},
			"tool": {"name": "look"}, "targets": {"nodes": ["pve2"]},
		},
		{},
	))
}

test_call_on_a_node_of_the_role_passes if {
	f.decided({
		"principal": {"id": "two", "credential_roles": ["reader"]}, "tool": {"name": "look"},
	}).allow
}

test_operation_on_a_node_outside_the_role_is_refused if {
	"node" in f.failed(f.operated(object.union(
		{
			"principal": {"id": "two", "credential_roles": ["reader"]}, "tool": {"name": "look"},
			"parent": {"tool": "look", "tier": "green"}, "target": {"node": "pve2"},
		},
		f.run(["pct", "list"]),
	)))
}

test_node_inside_an_api_path_counts if {
	"node" in f.failed(f.operated(object.union(
		{
			"principal": {"id": "two", "credential_roles": ["reader"]}, "tool": {"name": "look"},
			"parent": {"tool": "look", "tier": "green"},
		},
		f.run(["pvesh", "get", "/nodes/pve2/status"]),
	)))
}

test_unknown_node_is_refused if {
	d := f.operated(f.run(["pvesh", "get", "/nodes/evil/status"]))
	f.failed(d) == {"node"}
	contains(d.deny[0].msg, "node evil is not known here")
	f.failed(f.operated(f.run(["pvesh", "get", "/nodes/PVE1/status"]))) == {"node"}
	f.failed(f.decided({
		"tool": {"name": "run"},
		"commands": [f.cmd([["pvesh", "get", "/nodes/evil/status"]])],
	})) == {"node"}
}

test_node_of_another_cluster_is_unknown_to_this_one if {
	f.failed(f.operated(f.run(["pvesh", "get", "/nodes/far/status"]))) == {"node"}
	f.failed(f.operated(object.union(
		{"target": {"node": "alone", "cluster": ""}},
		f.run(["pvesh", "get", "/nodes/alone2/status"]),
	))) == {"node"}
	f.operated(object.union(
		{"target": {"node": "alone", "cluster": ""}},
		f.run(["pvesh", "get", "/nodes/alone/status"]),
	)).allow
}

test_node_of_the_cluster_that_is_not_in_the_inventory_can_be_listed if {
	f.operated_in(f.run(["pvesh", "get", "/nodes/pve9/status"]), {"cluster_nodes": ["pve9"]}).allow
	f.decided_in(
		{"tool": {"name": "run"}, "commands": [f.cmd([["pvesh", "get", "/nodes/pve9/status"]])]},
		{"cluster_nodes": ["pve9"]},
	).allow
	f.operated(f.run(["pvesh", "get", "/nodes/pve2/status"])).allow
}

test_node_out_of_reach_is_not_shown if {
	f.failed(f.seen({
		"principal": {"id": "two"}, "tool": {"name": "stop", "imports": ["ssh_exec"]},
		"targets": {"nodes": ["pve2"]},
	})) & {"node"} == {"node"}
}

test_node_in_reach_is_shown if {
	not "node" in f.failed(f.seen({
		"principal": {"id": "two"}, "tool": {"name": "stop", "imports": ["ssh_exec"]},
		"targets": {"nodes": ["pve1"]},
	}))
}
