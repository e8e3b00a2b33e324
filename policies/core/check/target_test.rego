package caponier.core.check.target_test

import data.caponier.core.fixture as f

test_declared_kind_may_not_be_empty if f.failed(f.decided({"targets": {"vmids": []}})) == {"target"}

test_every_declared_kind_counts if {
	some kind in [
		"nodes", "vmids", "services", "hosts", "paths", "guest_paths", "local_paths", "commands",
	]
	"target" in f.failed(f.decided({
		"tool": {"target_kinds": ["vmids", kind]},
		"targets": {"nodes": [], "vmids": [], "services": []},
	}))
}

test_unknown_kind_is_refused if {
	f.failed(f.decided({"tool": {"target_kinds": ["vmids", "planets"]}})) == {"target"}
}

test_declared_commands_are_needed if {
	f.failed(f.decided({"tool": {"target_kinds": ["commands"]}})) == {"target"}
}

test_declared_commands_pass if {
	f.decided({"tool": {"target_kinds": ["commands"]}, "commands": [f.cmd([["uptime"]])]}).allow
}

test_malformed_targets_are_refused if {
	every change in [
		{"vmids": ["0105"]}, {
			"vmids": ["105\n"],
		},
		{"vmids": ["1.05e2"]}, {"vmids": ["99"]}, {"nodes": ["-x"]}, {"nodes": ["a.b"]},
		{"services": ["a b"]}, {
			"hosts": ["A.com"],
		},
		{"paths": ["/a/../b"]}, {"paths": ["a"]}, {"guest_paths": ["/a//b"]}, {"vmids": [105]},
	] {
		"target" in f.failed(f.decided({"targets": change}))
	}
}

test_well_formed_targets_pass if {
	f.decided({"targets": {"vmids": ["105", "999999999"], "guest_paths": ["/root/a b"]}}).allow
}

test_the_reason_names_the_kind if {
	contains(f.decided({"targets": {"vmids": []}}).deny[0].msg, "targets are missing: vmids")
}

test_targets_must_be_lists if {
	every kind in ["nodes", "vmids", "services", "hosts", "paths", "guest_paths", "local_paths"] {
		every v in [null, "101", 1, true, {"a": "b"}] {
			"target" in f.failed(f.decided({"targets": {kind: v}}))
		}
	}
}
