# METADATA
# scope: package
# description: The operation is one that the tool declares, asked for by the running call of that very tool.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.imports

ok if {
	input.op in input.tool.imports
	input.parent.tool == input.tool.name
	is_string(input.parent.id)
	part := parts[input.op]
	input[part] != null
	alone(part)
	placed(part)
	named
}

# alone says that the other parts are null.
alone(part) if {
	every other in others[part] { input[other] == null }
}

# placed says that a node is named by exactly those operations that run on one.
placed(part) if {
	part in {"command", "file"}
	input.target != null
}

placed(part) if {
	part in {"http", "blob", "ask"}
	input.target == null
}

named if not actions[input.op]

named if input.file.action == actions[input.op]

parts := {
	"ssh_exec": "command", "ssh_script": "command", "stage": "file", "sftp_stat": "file", "sftp_list": "file", "sftp_read": "file",
	"sftp_write": "file", "sftp_get": "file", "sftp_put": "file", "sftp_remove": "file", "http_request": "http", "blob_write": "blob",
	"blob_read": "blob", "ask": "ask",
}

others := {
	"command": ["file", "http", "blob", "ask"], "file": ["command", "http", "blob", "ask"], "http": ["command", "file", "blob", "ask"],
	"blob": ["command", "file", "http", "ask"], "ask": ["command", "file", "http", "blob"],
}

actions := {
	"stage": "stage", "sftp_stat": "stat", "sftp_list": "list", "sftp_read": "read",
	"sftp_write": "write", "sftp_get": "get", "sftp_put": "put", "sftp_remove": "remove",
}

why := input.op
