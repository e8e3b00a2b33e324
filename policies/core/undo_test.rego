package caponier.core.undo_test

import data.caponier.core.fixture as f
import data.caponier.core.host

none := {"record": false, "optional": false, "days": 0, "max_bytes": 0}

all := {"record": true, "optional": false, "days": 7, "max_bytes": 100}

rules(more) := {"undo": object.union(
	{"optional": false, "keep_days": 7, "max_bytes": 100},
	more,
)}

asked(op, more) := f.operated_in(op, rules(more)).obligations.undo

stop := f.run(["pct", "shutdown", "105"])

test_from_the_tier_on_or_for_a_tool if {
	asked(stop, {"tier": "yellow"}) == all
	asked(stop, {"tier": "red"}) == none
	asked(stop, {"tools": ["stop"]}) == all
	asked(stop, {"tools": ["look"]}) == none
	asked(stop, {"tier": "yellow", "optional": true}).optional == true
	asked(f.run(["pct", "status", "105"]), {"tier": "yellow"}) == none
	f.operated(stop).obligations.undo == none
}

test_steps_of_an_undo_are_not_recorded if {
	by := object.union(stop, {"tool": {"imports": ["ssh_exec", "undo_steps"]}})
	asked(by, {"tier": "yellow"}) == none
}

test_files_of_the_stage_are_not_recorded if {
	write := {"action": "write", "overwrite": true}
	by := {"tool": {"imports": ["sftp_write"]}}
	staged := object.union(f.with_file("sftp_write", "upload", "red", write), by)
	asked(staged, {"tier": "yellow"}) == none
	elsewhere := object.union(write, {"path": "/srv/in/x", "real_path": "/srv/in/x"})
	asked(
		object.union(f.with_file("sftp_write", "upload", "red", elsewhere), by),
		{"tier": "yellow"},
	) == all
}

first(call, more) := f.decided_in(call, {"plan_first": more}).obligations.plan

test_calls_are_planned_first_as_the_site_asks if {
	first({}, {"tier": "yellow"})
	first({}, {"tools": ["stop"]})
	not first({}, {"tier": "red"})
	not first({}, {"tools": ["look"]})
	not first(object.union(f.tool("look"), {}), {"tier": "yellow", "tools": ["look"]})
	not f.decided({}).obligations.plan
	not f.operated_in(stop, {"plan_first": {"tier": "yellow"}}).obligations.plan
}

me := {"id": "host", "auth": "host", "roles": [], "credential_roles": [], "narrowed": false}

by_host(op, part) := f.operated(object.union(part, {
	"op": op, "principal": me, "source": "host", "kind": "host",
	"tool": {
		"name": "look_at", "imports": host.tools.look_at.imports,
		"commands": host.tools.look_at.commands, "target_kinds": [],
	},
	"parent": {
		"tool": "look_at", "tier": "green",
		"targets": {"vmids": ["105"], "paths": ["/srv/in/x", "/var/log/x", "/srv/in/.ssh/x"]},
	},
}))

file(path) := {"file": {
	"action": "read", "path": path, "real_path": path, "local": null, "bytes": 10, "sha256": null,
	"mode": "", "type": "file", "exists": true, "overwrite": false, "parents": false,
	"current_mode": 0,
}}

test_the_host_reads_only_what_calls_may_write if {
	by_host("sftp_read", file("/srv/in/x")).allow
	every path in ["/srv/in/other", "/srv/in/.ssh/x", "/etc/shadow"] {
		"file" in f.failed(by_host("sftp_read", file(path)))
	}
	not by_host("sftp_write", object.union(file("/srv/in/x"), {"file": {"action": "write"}})).allow
	by_host("ssh_exec", f.run(["systemctl", "show", "--property=ActiveState", "--", "nginx"])).allow
	not by_host("ssh_exec", f.run(["pct", "stop", "105"])).allow
}

back(path) := f.operated(object.union(
	f.with_file("sftp_write", "kill", "red", {"action": "write", "overwrite": true}),
	{
		"tool": {"name": "kill", "imports": ["sftp_write", "undo_steps"], "target_kinds": []},
		"parent": {
			"tool": "kill", "tier": "red", "targets": {"paths": ["/srv/in/x", "/etc/passwd"]},
		},
		"file": {"path": path, "real_path": path, "type": "file", "exists": true},
	},
))

test_an_undo_writes_only_where_its_call_wrote if {
	back("/srv/in/x").allow
	not back("/srv/in/y").allow
	not back("/etc/passwd").allow
}
