# METADATA
# scope: package
# description: >-
#   The operation is one that the tool declares, asked for by the running call of that very tool.
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
	part == parts[input.op]
	somewhere
	action
}

# The operation has one part and no other.
part := "command" if {
	input.file == null
	input.http == null
	input.blob == null
	input.ask == null
	input.command != null
}

part := "file" if {
	input.command == null
	input.http == null
	input.blob == null
	input.ask == null
	input.file != null
}

part := "http" if {
	input.command == null
	input.file == null
	input.blob == null
	input.ask == null
	input.http != null
}

part := "blob" if {
	input.command == null
	input.file == null
	input.http == null
	input.ask == null
	input.blob != null
}

part := "ask" if {
	input.command == null
	input.file == null
	input.http == null
	input.blob == null
	input.ask != null
}

# It names a node exactly if it runs on one. What is discarded is on a node or in the workspace.
somewhere if {
	part in {"command", "file"}
	input.target != null
}

somewhere if {
	not part in {"command", "file"}
	input.target == null
}

somewhere if input.op == "discard"

action if not actions[input.op]

action if input.file.action == actions[input.op]

parts := {
	"ssh_exec": "command", "ssh_script": "command", "stage": "file", "sftp_stat": "file",
	"sftp_list": "file", "sftp_read": "file", "sftp_write": "file", "sftp_get": "file",
	"sftp_put": "file", "sftp_remove": "file", "http_request": "http", "blob_write": "blob",
	"blob_read": "blob", "ask": "ask", "discard": "file",
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
