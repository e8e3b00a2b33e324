# METADATA
# scope: package
# description: The part of each operation, as the host sees it when the facts were looked up.
package caponier.testing.operations

import data.caponier.core.operations.table
import data.caponier.testing.lowered

# takes are the members that each operation has beside "node" and "phase".
takes := object.union(
	{name: facts | some name, op in table; op.part == "file"; op.node},
	{
		"ssh_exec": {"argv"}, "ssh_script": {"script"}, "blob_read": {"name", "bytes", "local"},
		"blob_write": {"name", "mime", "bytes", "ttl_s"}, "ask": {"key", "bytes", "fields"},
		"list_commands": {"node", "word"}, "snapshots": {"all"}, "stage": set(),
		"http_request": {
			"method", "scheme", "host", "port", "path", "query", "headers", "addrs", "hop",
			"body_bytes", "credential", "reserve_usd_micros",
		},
	},
)

facts := {
	"path", "real_path", "type", "exists", "bytes", "current_mode", "local", "mode", "overwrite",
	"parents", "sha256",
}

needs := object.union(
	{name: op.needs | some name, op in table},
	{"ssh_exec": {"argv"}, "ssh_script": {"script"}, "http_request": {"host"}},
)

on_node(name) if table[name].node

empty := {
	"command": null, "file": null, "http": null, "blob": null, "ask": null, "record": null,
	"listing": null,
}

part(name, op) := object.union(empty, view_of(name, object.remove(op, ["node"]))) if {
	on_node(name)
} else := object.union(empty, view_of(name, object.remove(op, ["phase"])))

view_of("ssh_exec", op) := {"command": {
	"form": "argv", "arg": "", "guest": false, "text": "", "parsed": true, "error": "",
	"features": [], "calls": [{"argv": op.argv, "static": true}], "nested": [], "rendered": "",
	"stdin": {"bytes": 0, "sha256": ""},
}}

view_of("ssh_script", op) := {"command": object.union(
	lowered.script(op.script),
	{"arg": "", "guest": false, "rendered": ""},
)}

file := {
	"action": "stage", "path": "", "real_path": null, "local": null, "bytes": null, "sha256": null,
	"mode": "", "type": null, "exists": null, "overwrite": false, "parents": false,
	"current_mode": null,
}

view_of("stage", _) := {"file": file}

view_of(name, op) := {"file": object.union_n([file, usual(name, op), given])} if {
	startswith(name, "sftp_")
	action := {"action": trim_prefix(name, "sftp_")}
	given := object.union(object.remove(op, ["phase"]), action)
}

usual(name, op) := {} if {
	op.phase == "lookup"
} else := {
	"real_path": op.path, "type": "", "exists": false, "bytes": 0, "current_mode": 0,
	"sha256": sum(name),
} if {
	name in {"sftp_write", "sftp_put"}
} else := {
	"real_path": op.path, "type": "file", "exists": true, "bytes": 0, "current_mode": 420,
}

sum(name) := "sha256:00" if {
	name == "sftp_write"
} else := null

view_of("http_request", op) := {"http": object.union(
	{
		"method": "GET", "scheme": "https", "port": 443, "path": "/", "query": "", "headers": [],
		"addrs": [{"ip": "1.1.1.1", "class": "global"}], "hop": 0, "body_bytes": 0,
		"body_sha256": concat("", [
			"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		]),
		"credential": "", "reserve_usd_micros": 0,
	},
	op,
)}

view_of("blob_write", op) := {"blob": object.union(blob("write"), op)}

view_of("blob_read", op) := {"blob": object.union(blob("read"), op)} if not op.local

view_of("blob_read", op) := {"blob": object.union(blob("get"), op)} if op.local

blob(action) := {
	"action": action, "name": "", "mime": "", "bytes": 0, "ttl_s": 0, "local": "",
}

view_of("ask", op) := {"ask": object.union({"key": "", "bytes": 0, "fields": 0}, op)}

view_of("list_commands", op) := {"listing": object.union({"node": "", "word": ""}, op)}

view_of("snapshots", op) := {"record": object.union(
	{"action": "snapshots", "call": "", "all": false, "undo": null},
	op,
)}
