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
	count([x | some x in [input.command, input.file, input.http, input.blob, input.ask]; x != null]) == 1
	subject_ok
}

subject_ok if {
	input.op in {"ssh_exec", "ssh_script"}
	input.command != null
	input.target != null
}

subject_ok if {
	input.file.action == actions[input.op]
	input.target != null
}

subject_ok if {
	input.op == "http_request"
	input.http != null
	input.target == null
}

subject_ok if {
	input.op in {"blob_write", "blob_read"}
	input.blob != null
	input.target == null
}

subject_ok if {
	input.op == "ask"
	input.ask != null
	input.target == null
}

actions := {
	"stage": "stage", "sftp_stat": "stat", "sftp_list": "list", "sftp_read": "read",
	"sftp_write": "write", "sftp_get": "get", "sftp_put": "put", "sftp_remove": "remove",
}

why := input.op
