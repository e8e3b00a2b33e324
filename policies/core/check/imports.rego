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
	alone(parts[input.op])
	named
}

# alone says that the operation has this part and no other, and names a node exactly if it runs on one.
alone("command") if {
	input.command != null
	input.target != null
	input.file == null
	input.http == null
	input.blob == null
	input.ask == null
}

alone("file") if {
	input.file != null
	input.target != null
	input.command == null
	input.http == null
	input.blob == null
	input.ask == null
}

alone("http") if {
	input.http != null
	input.target == null
	input.command == null
	input.file == null
	input.blob == null
	input.ask == null
}

alone("blob") if {
	input.blob != null
	input.target == null
	input.command == null
	input.file == null
	input.http == null
	input.ask == null
}

alone("ask") if {
	input.ask != null
	input.target == null
	input.command == null
	input.file == null
	input.http == null
	input.blob == null
}

named if not actions[input.op]

named if input.file.action == actions[input.op]

parts := {
	"ssh_exec": "command", "ssh_script": "command", "stage": "file", "sftp_stat": "file", "sftp_list": "file", "sftp_read": "file",
	"sftp_write": "file", "sftp_get": "file", "sftp_put": "file", "sftp_remove": "file", "http_request": "http", "blob_write": "blob",
	"blob_read": "blob", "ask": "ask",
}

actions := {
	"stage": "stage", "sftp_stat": "stat", "sftp_list": "list", "sftp_read": "read",
	"sftp_write": "write", "sftp_get": "get", "sftp_put": "put", "sftp_remove": "remove",
}

why := input.op
