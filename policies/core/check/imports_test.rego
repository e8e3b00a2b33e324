package caponier.core.check.imports_test

import data.caponier.core.fixture as f

test_operation_that_the_tool_does_not_declare_is_refused if {
	q := object.union({"tool": {"imports": ["sftp_stat"]}}, f.run(["pct", "list"]))
	"imports" in f.failed(f.operated(q))
}

test_operation_of_another_tools_call_is_refused if {
	q := object.union({"parent": {"tool": "kill"}}, f.run(["pct", "list"]))
	"imports" in f.failed(f.operated(q))
}

test_operation_without_its_part_is_refused if "imports" in f.failed(f.operated({}))

test_operation_with_two_parts_is_refused if {
	q := object.union(f.run(["pct", "list"]), {"ask": {"key": "k", "bytes": 1, "fields": 1}})
	"imports" in f.failed(f.operated(q))
}

test_part_must_be_that_of_the_operation if {
	d := f.operated(object.union(
		f.with_file("sftp_read", "upload", "yellow", {"action": "stat", "path": "/var/log/x"}),
		{},
	))
	"imports" in f.failed(d)
}

test_http_on_a_node_is_refused if {
	"imports" in f.failed(f.operated(object.union(f.with_http({}), {"target": {"node": "pve1"}})))
}

test_list_is_of_no_node if {
	q := {
		"op": "list_commands", "listing": {"node": "", "word": "pct"},
		"tool": {"imports": ["list_commands"]},
	}
	off := object.union(q, {"target": null})
	f.operated(off).allow
	f.operated(off).tier == "green"
	"imports" in f.failed(f.operated(q))
	"imports" in f.failed(f.operated(object.union(off, {"tool": {"imports": ["ssh_exec"]}})))
}

test_each_kind_passes if {
	f.operated(f.run(["pct", "list"])).allow
	f.operated(f.with_http({})).allow
	blob := {"action": "write", "name": "x", "mime": "text/plain", "bytes": 10, "ttl_s": 60}
	f.operated({
		"op": "blob_write", "target": null, "blob": blob, "tool": {"imports": ["blob_write"]},
	}).allow
	f.operated({
		"op": "ask", "target": null, "ask": {"key": "k", "bytes": 10, "fields": 1},
		"tool": {"imports": ["ask"]},
	}).allow
}
