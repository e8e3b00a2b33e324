package caponier.core.check.node_test

import data.caponier.core.fixture as f

test_call_on_a_node_outside_the_role_is_refused if {
	"node" in f.failed(f.decided_in({"principal": {"id": "two", "roles": ["reader"]}, "tool": {"name": "look"}, "targets": {"nodes": ["pve2"]}}, {}))
}

test_call_on_a_node_of_the_role_passes if f.decided({"principal": {"id": "two", "roles": ["reader"]}, "tool": {"name": "look"}}).allow

test_operation_on_a_node_outside_the_role_is_refused if {
	"node" in f.failed(f.operated(object.union(
		{"principal": {"id": "two", "roles": ["reader"]}, "tool": {"name": "look"}, "parent": {"tool": "look", "tier": "green"}, "target": {"node": "pve2"}},
		f.run(["pct", "list"]),
	)))
}

test_node_inside_an_api_path_counts if {
	"node" in f.failed(f.operated(object.union(
		{"principal": {"id": "two", "roles": ["reader"]}, "tool": {"name": "look"}, "parent": {"tool": "look", "tier": "green"}},
		f.run(["pvesh", "get", "/nodes/pve2/status"]),
	)))
}
