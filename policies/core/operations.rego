# METADATA
# scope: package
# description: >-
#   The operations, as sdk/abi lists them. make docs writes this file.
package caponier.core.operations

# For each operation: its part of the input, its action on a file, whether it runs on a node,
# whether plugins can ask for it, and what its part always has.
table := {
	"ask": {
		"part": "ask", "action": "", "node": false, "plugins": true, "needs": set(),
	},
	"blob_read": {
		"part": "blob", "action": "", "node": false, "plugins": true, "needs": set(),
	},
	"blob_write": {
		"part": "blob", "action": "", "node": false, "plugins": true, "needs": set(),
	},
	"discard": {
		"part": "file", "action": "discard", "node": false, "plugins": false, "needs": {"path"},
	},
	"http_request": {
		"part": "http", "action": "", "node": false, "plugins": true, "needs": set(),
	},
	"list_commands": {
		"part": "listing", "action": "", "node": false, "plugins": true, "needs": set(),
	},
	"sftp_get": {
		"part": "file", "action": "get", "node": true, "plugins": true, "needs": {"path", "local"},
	},
	"sftp_list": {
		"part": "file", "action": "list", "node": true, "plugins": true, "needs": {"path"},
	},
	"sftp_put": {
		"part": "file", "action": "put", "node": true, "plugins": true, "needs": {"path", "local"},
	},
	"sftp_read": {
		"part": "file", "action": "read", "node": true, "plugins": true, "needs": {"path"},
	},
	"sftp_remove": {
		"part": "file", "action": "remove", "node": true, "plugins": true, "needs": {"path"},
	},
	"sftp_stat": {
		"part": "file", "action": "stat", "node": true, "plugins": true, "needs": {"path"},
	},
	"sftp_write": {
		"part": "file", "action": "write", "node": true, "plugins": true, "needs": {"path"},
	},
	"snapshots": {
		"part": "record", "action": "", "node": false, "plugins": true, "needs": set(),
	},
	"ssh_exec": {
		"part": "command", "action": "", "node": true, "plugins": true, "needs": set(),
	},
	"ssh_script": {
		"part": "command", "action": "", "node": true, "plugins": true, "needs": set(),
	},
	"stage": {
		"part": "file", "action": "stage", "node": true, "plugins": true, "needs": set(),
	},
	"undo_steps": {
		"part": "record", "action": "", "node": false, "plugins": true, "needs": set(),
	},
}
