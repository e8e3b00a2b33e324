# METADATA
# scope: package
# description: The tool declares the operation, and a running call of the same tool asks for it.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.imports

asked := {"operation"}

order := 6

ok if {
	input.op in input.tool.imports
	input.parent.tool == input.tool.name
	is_string(input.parent.id)
	part := parts[input.op]
	given(part)
	count([value | some value in all; value == null]) == count(all) - 1
	somewhere(part)
	action
}

# The operation has one of these parts, and the others are null.
all := [
	input.command, input.file, input.http, input.blob, input.ask, input.record, input.listing,
]

given("command") if input.command != null

given("file") if input.file != null

given("http") if input.http != null

given("blob") if input.blob != null

given("ask") if input.ask != null

given("record") if input.record != null

given("listing") if input.listing != null

# The operation names a node if and only if it runs on one. discard removes something on a node or
# in the workspace.
somewhere(part) if {
	part in {"command", "file"}
	input.target != null
}

somewhere(part) if {
	not part in {"command", "file"}
	input.target == null
}

somewhere(_) if input.op == "discard"

action if not actions[input.op]

action if input.file.action == actions[input.op]

parts := {
	"ssh_exec": "command", "ssh_script": "command", "stage": "file", "sftp_stat": "file",
	"sftp_list": "file", "sftp_read": "file", "sftp_write": "file", "sftp_get": "file",
	"sftp_put": "file", "sftp_remove": "file", "http_request": "http", "blob_write": "blob",
	"blob_read": "blob", "ask": "ask", "list_commands": "listing", "discard": "file",
	"undo_steps": "record", "snapshots": "record",
}

actions := {
	"stage": "stage", "sftp_stat": "stat", "sftp_list": "list", "sftp_read": "read",
	"sftp_write": "write", "sftp_get": "get", "sftp_put": "put", "sftp_remove": "remove",
	"discard": "discard",
}

what := sprintf("%s is not an operation that %s declares, or not asked for as its call allows", [
	input.op, input.tool.name,
])

rule := "plugins.lock: imports of the tool"

works := "another tool; only the plugin's author can change this one"

remedy := "The tool must declare the operation, which is a new lock entry to review."
