package caponier.core.check.bound_test

import data.caponier.core.fixture as f

test_another_guest_is_refused if f.failed(f.operated(f.run(["pct", "stop", "106"]))) == {"bound"}

test_the_reason_names_the_guest if {
	q := f.run(["pct", "stop", "106"])
	contains(f.operated(q).deny[0].msg, "106 is not what this call named")
}

test_guest_of_the_call_passes if f.operated(f.run(["pct", "stop", "105"])).allow

test_guest_of_the_calls_own_command_passes if {
	f.operated(object.union(
		{"parent": {"targets": {"vmids": []}, "commands": [f.cmd([["pct", "stop", "106"]])]}},
		f.run(["pct", "stop", "106"]),
	)).allow
}

test_guest_named_in_text_for_a_guest_is_not_bound if {
	text := object.union(f.cmd([["pct", "stop", "106"]]), {"guest": true, "text": "pct stop 106"})
	q := object.union({"parent": {"commands": [text]}}, f.run(["pct", "stop", "106"]))
	f.failed(f.operated(q)) == {"bound"}
}

test_one_of_two_guests_is_not_enough if {
	d := f.operated({"command": f.cmd([["pct", "stop", "105"], ["pct", "stop", "106"]])})
	f.failed(d) == {"bound"}
}

test_green_reads_look_wider if f.operated(f.run(["pct", "status", "106"])).allow

test_another_node_is_refused if {
	f.failed(f.operated(f.run([
		"pvesh", "create", "/nodes/pve2/services/pveproxy/restart",
	]))) == {"bound"}
	f.failed(f.operated(f.run(["pvesh", "create", "/nodes/pve2/lxc/106/status/stop"]))) == {"bound"}
	f.failed(f.operated(f.run(["pvenode", "wakeonlan", "pve2"]))) == {"bound"}
}

test_waking_a_node_of_the_call_may_run_elsewhere_in_the_cluster if {
	wake := object.union(
		f.tool("wake"),
		{"target": {"node": "pve1"}, "parent": {"targets": {"nodes": ["pve2"], "vmids": []}}},
	)
	f.operated(object.union(wake, f.run(["pvenode", "wakeonlan", "pve2"]))).allow
}

test_guest_may_run_on_another_node_of_the_cluster if {
	f.operated(object.union({"target": {"node": "pve2"}}, f.run(["pct", "stop", "105"]))).allow
}

test_guest_of_another_cluster_is_another_guest if {
	q := object.union(
		{"target": {
			"node": "far", "cluster": "other",
		}},
		f.run(["pct", "stop", "105"]),
	)
	f.failed(f.operated(q)) == {"bound"}
}

test_nodes_without_a_cluster_are_not_in_one_cluster if {
	change := {"target": {"node": "alone2", "cluster": ""}, "parent": {"clusters": [""]}}
	f.failed(f.operated(object.union(change, f.run(["pct", "stop", "105"])))) == {"bound"}
}

test_service_must_be_named_and_on_the_calls_node if {
	restart := f.run(["systemctl", "restart", "--", "nginx.service"])
	f.failed(f.operated(restart)) == {"bound"}
	f.operated(object.union({"parent": {"targets": {"services": ["nginx"]}}}, restart)).allow
	f.failed(f.operated(object.union(
		{"parent": {"targets": {"services": ["nginx"]}}, "target": {"node": "pve2"}},
		restart,
	))) == {"bound"}
}

test_service_beside_a_guest_still_stays_on_the_calls_node if {
	both := {
		"command": f.cmd([["pct", "stop", "105"], ["systemctl", "restart", "nginx"]]),
		"target": {"node": "pve2"}, "parent": {"targets": {"services": ["nginx"]}},
	}
	f.failed(f.operated(both)) == {"bound"}
}

test_file_on_another_node_is_refused if {
	elsewhere := {
		"target": {"node": "pve2"},
		"parent": {
			"targets": {"vmids": []}, "stages": [{"node": "pve2", "dir": "/run/caponier/s1"}],
		},
	}
	f.failed(f.operated(object.union(
		f.with_file("sftp_put", "upload", "yellow", {"action": "put", "local": "in/x"}),
		elsewhere,
	))) == {"bound"}
}

test_stage_may_be_where_the_guest_is if {
	elsewhere := {
		"target": {"node": "pve2"},
		"parent": {"stages": [{"node": "pve2", "dir": "/run/caponier/s1"}]},
	}
	f.operated(object.union(
		f.with_file("sftp_put", "upload", "yellow", {"action": "put", "local": "in/x"}),
		elsewhere,
	)).allow
	q := object.union(
		f.with_file("stage", "upload", "yellow", {
			"action": "stage", "path": "",
		}),
		elsewhere,
	)
	f.operated(q).allow
}

test_guest_of_the_call_may_be_named_with_its_node if {
	f.operated(f.run(["pvesh", "create", "/nodes/pve2/lxc/105/status/stop"])).allow
	both := {
		"command": f.cmd([
			["pvesh", "create", "/nodes/pve2/lxc/105/status/stop"],
			["pvenode", "wakeonlan", "pve2"],
		]),
	}
	f.failed(f.operated(both)) == {"bound"}
}

test_stage_in_another_cluster_is_refused if {
	elsewhere := {
		"target": {"node": "far", "cluster": "other"},
		"parent": {"stages": [{"node": "far", "dir": "/run/caponier/s1"}]},
	}
	f.failed(f.operated(object.union(
		f.with_file("sftp_put", "upload", "yellow", {"action": "put", "local": "in/x"}),
		elsewhere,
	))) == {"bound"}
}

test_operation_without_a_node_is_not_bound_to_a_node if {
	f.operated(f.with_http({"method": "POST"})).allow
}

test_service_of_the_call_is_bound_under_its_aliases if {
	f.operated(object.union(
		{"parent": {"targets": {"services": ["crond.service"]}}},
		f.run(["systemctl", "restart", "cron"]),
	)).allow
	f.failed(f.operated(object.union(
		{"parent": {"targets": {"services": ["crond.service"]}}},
		f.run(["systemctl", "restart", "nginx"]),
	))) == {"bound"}
}
