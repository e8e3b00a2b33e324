package caponier.core.refusals_test

import data.caponier.core.fixture as f

# What is wrong with the question itself: its targets, commands, files, hosts and sizes.
refusals["no target"] := f.decided({"targets": {"vmids": []}})

golden["no target"] := [
	[
		"targets are missing: vmids", "the tool's declared targets",
		"name each target that the tool's schema asks for, in full",
	],
]

refusals["a target in another form"] := f.decided({"targets": {"vmids": ["0105"]}})

golden["a target in another form"] := [
	[
		"targets are not in their canonical form: \"0105\"", "the tool's declared targets",
		"name each target that the tool's schema asks for, in full",
	],
]

refusals["an unknown program"] := call([["docker", "ps"]])

golden["an unknown program"] := [
	[
		"\"docker\" is not a command that policy knows",
		"the command grammar, roles/NAME/commands", "programs that you may run: cat, pct",
	],
]

refusals["an unknown option"] := call([["zpool", "status", "-q"]])

golden["an unknown option"] := [
	[
		"\"zpool status\" does not take \"-q\"; it takes ZPOOL* -D -L -P -g -i -p -s -t -v -x",
		"the command grammar, roles/NAME/commands", "programs that you may run: cat, pct",
	],
]

refusals["a command of no role"] := f.operated(object.union(
	object.union(reader, {"parent": {"tool": "look"}}),
	f.run(["tail", "/var/log/syslog"]),
))

golden["a command of no role"] := [
	[
		"none of your roles may run \"tail\" (group files)",
		"the command grammar, roles/NAME/commands", "programs that you may run: none",
	],
]

refusals["text that a shell would expand"] := f.decided({
	"tool": {"name": "run"},
	"commands": [object.union(f.cmd([]), {"parsed": false, "error": "a redirection at 1:8"})],
})

golden["text that a shell would expand"] := [
	[
		"it was not understood: a redirection at 1:8",
		"the command grammar, roles/NAME/commands",
		"write the commands in full; pipes, && and || are fine where the site grants them",
	],
]

refusals["a joiner"] := f.decided({
	"tool": {"name": "run"},
	"commands": [object.union(f.cmd([["uptime"]]), {"features": ["or"]})],
})

golden["a joiner"] := [
	[
		"the shell feature or is not granted here", "the command grammar, roles/NAME/commands",
		"programs that you may run: cat, pct",
	],
]

refusals["a path"] := call([["cat", "/root/x"]])

golden["a path"] := [
	[
		"path /root/x is outside what the call and the site allow", "files/read, files/write",
		"in commands, these and what lies directly in them: /etc/hosts, /var/log",
	],
]

refusals["a file in no folder"] := f.operated(f.with_file("sftp_read", "upload", "yellow", {
	"action": "read", "path": "/opt/x", "real_path": "/opt/x", "type": "file",
}))

golden["a file in no folder"] := [
	[
		concat("; ", [
			"/opt/x is in no folder that the site lists for this",
			"it really is /opt/x, which is elsewhere",
		]),
		"files/read, files/write and files/max_bytes, and the call's paths",
		"a path that the call names, in a folder that the site lists",
	],
]

refusals["a file that exists"] := f.operated(f.with_file("sftp_put", "upload", "yellow", {
	"action": "put", "local": "in/x", "exists": true, "type": "file",
}))

golden["a file that exists"] := [
	[
		"it is there already, and overwriting was not asked for",
		"files/read, files/write and files/max_bytes, and the call's paths",
		"the same call with overwrite, or another name",
	],
]

refusals["a host"] := f.decided({"targets": {"hosts": ["evil.com"]}})

golden["a host"] := [
	["host evil.com is not listed", "egress", "hosts that the site lists: api.example.com"],
]

refusals["an address of another class"] := f.operated(f.with_http({"addrs": [{
	"ip": "10.0.0.1",
	"class": "private",
}]}))

golden["an address of another class"] := [
	[
		"address 10.0.0.1 is private, and listed are global", "egress/api.example.com",
		"hosts that the site lists: api.example.com",
	],
]

refusals["a method"] := f.operated(f.with_http({"method": "DELETE"}))

golden["a method"] := [
	[
		"DELETE https://api.example.com:443 is not among GET,POST https 443",
		"egress/api.example.com", "hosts that the site lists: api.example.com",
	],
]

refusals["another guest than the call's"] := op(["pct", "stop", "106"])

golden["another guest than the call's"] := [
	["106 is not what this call named", "the call's targets", "another call that names it"],
]

refusals["a command that is not declared"] := f.operated(object.union(
	{"tool": {"commands": ["pct start"]}},
	f.run(["pct", "stop", "105"]),
))

golden["a command that is not declared"] := [
	[
		"stop runs pct stop, and declares pct start", "plugins.lock: commands of the tool",
		"another tool; only the plugin's author can declare the command, for a review",
	],
]

refusals["large arguments"] := f.decided({"args": {"bytes": 5000}})

golden["large arguments"] := [
	[
		"the arguments have 5000 bytes, over the limit of 1000", "limits/argument_bytes",
		"smaller arguments; large data as a file",
	],
]

refusals["too many calls"] := f.decided({"facts": {"calls_60s": 11, "calls_retry_s": 7}})

golden["too many calls"] := [
	[
		"too many calls in a minute: 11, 1 of this tool, 1 on this target",
		"limits/calls_per_minute", "the same call in 7 seconds",
	],
]

refusals["money"] := f.decided({"facts": {"usd_micros_today": 1000}})

golden["money"] := [
	[
		"1000 millionths of a dollar are spent today, of 100", "limits/usd_micros_per_day",
		"the same call tomorrow (UTC)",
	],
]

refusals["a large blob"] := f.operated({
	"op": "blob_write", "target": null, "tool": {"imports": ["blob_write"]},
	"blob": {"action": "write", "name": "x", "mime": "a/b", "bytes": 2000, "ttl_s": 1},
})

golden["a large blob"] := [
	["a blob of 2000 bytes is over the limit of 1000", "limits/blob_bytes", "smaller data"],
]

refusals["many reasons"] := f.decided({
	"targets": {"vmids": ["103"], "hosts": ["evil.com"], "paths": ["/opt/x"]},
	"args": {"bytes": 5000}, "facts": {"calls_60s": 11}, "mode": {"read_only": true},
})

golden["many reasons"] := [
	[
		"guest 103 is protected: management VM", "protected/vmids/103",
		"it stays refused, whatever is confirmed; choose another target",
	],
	["the host is read-only, and this is yellow", "read-only mode", "green tools and commands"],
	[
		"path /opt/x is outside what the call and the site allow", "files/read, files/write",
		"in commands, these and what lies directly in them: /etc/hosts, /var/log",
	],
	["host evil.com is not listed", "egress", "hosts that the site lists: api.example.com"],
]
