package caponier.core.refusals_test

import data.caponier.core.fixture as f

# What is closed to everyone: protected, frozen, read-only, black.
refusals["a protected guest"] := f.decided({"targets": {"vmids": ["103"]}})

golden["a protected guest"] := [
	[
		"guest 103 is protected: management VM", "protected/vmids/103",
		"it stays refused, whatever is confirmed; choose another target",
	],
]

refusals["a protected guest in a command"] := call([["pct", "stop", "103"]])

golden["a protected guest in a command"] := [
	[
		"guest 103 is protected: management VM", "protected/vmids/103",
		"it stays refused, whatever is confirmed; choose another target",
	],
]

refusals["a protected guest in a path"] := op(["cat", "/etc/pve/lxc/103.conf"])

golden["a protected guest in a path"] := [
	[
		"guest 103 is protected: management VM", "protected/vmids/103",
		"it stays refused, whatever is confirmed; choose another target",
	],
	[
		"path /etc/pve/lxc/103.conf is outside what the call and the site allow",
		"files/read, files/write",
		"in commands, these and what lies directly in them: /etc/hosts, /var/log",
	],
]

refusals["a protected node"] := f.decided({"targets": {"nodes": ["agent1"]}})

golden["a protected node"] := [
	[
		concat("; ", [
			"host 192.168.1.61 is protected: agent1 by its address",
			"node agent1 is protected: runs this host",
		]),
		"protected/hosts/192.168.1.61, protected/nodes/agent1",
		"it stays refused, whatever is confirmed; choose another target",
	],
]

refusals["a protected service"] := f.decided({"targets": {"services": ["docker"]}})

golden["a protected service"] := [
	[
		"service docker.service is protected: container runtime",
		"protected/services/docker.service",
		"it stays refused, whatever is confirmed; choose another target",
	],
]

refusals["a protected address"] := f.decided({"targets": {"hosts": ["192.168.1.61"]}})

golden["a protected address"] := [
	[
		"host 192.168.1.61 is protected: agent1 by its address", "protected/hosts/192.168.1.61",
		"it stays refused, whatever is confirmed; choose another target",
	],
	["host 192.168.1.61 is not listed", "egress", "hosts that the site lists: api.example.com"],
]

refusals["a protected guest, approved"] := f.decided({
	"targets": {"vmids": ["103"]},
	"confirmation": {"state": "approved", "by": "bob", "channel": "cli"},
})

golden["a protected guest, approved"] := [
	[
		"guest 103 is protected: management VM", "protected/vmids/103",
		"it stays refused, whatever is confirmed; choose another target",
	],
]

refusals["everything is frozen"] := f.decided({"mode": {"freezes": [frozen("all", "")]}})

golden["everything is frozen"] := [
	[
		"everything is frozen: an incident", "freeze",
		"nothing until an operator ends the freeze; do not repeat the call",
	],
]

refusals["a node is frozen"] := f.decided({"mode": {"freezes": [frozen("node", "pve1")]}})

golden["a node is frozen"] := [
	[
		"node pve1 is frozen: an incident", "freeze",
		"nothing until an operator ends the freeze; do not repeat the call",
	],
]

refusals["a principal is frozen"] := f.decided({"mode": {"freezes": [frozen("principal", "ann")]}})

golden["a principal is frozen"] := [
	[
		"principal ann is frozen: an incident", "freeze",
		"nothing until an operator ends the freeze; do not repeat the call",
	],
]

refusals["read-only"] := f.decided({"mode": {"read_only": true}})

golden["read-only"] := [
	["the host is read-only, and this is yellow", "read-only mode", "green tools and commands"],
]

refusals["a black tool"] := f.decided({"tool": {"name": "never"}})

golden["a black tool"] := [
	["tool:never is black", "tiers/tool:never", "nothing: what is black never runs"],
]

refusals["a black command"] := call([["reboot"]])

golden["a black command"] := [
	["reboot is black", "tiers/tool:run", "nothing: what is black never runs"],
]
