package caponier.core.check.protected_test

import data.caponier.core.fixture as f

test_protected_guest_is_refused_even_if_confirmed if {
	d := f.decided({
		"targets": {"vmids": ["103"]},
		"confirmation": {"state": "approved", "by": "bob", "channel": "cli"},
	})
	f.failed(d) == {"protected"}
	contains(d.deny[0].msg, "guest 103 is protected: management VM")
}

test_another_guest_passes if f.decided({}).allow

test_protected_node_is_refused if {
	"protected" in f.failed(f.decided({"targets": {"nodes": ["agent1"]}}))
}

test_node_is_known_by_its_address if {
	here := {
		"nodes": [
			{"name": "pve1", "cluster": "lab", "host": "192.168.1.61"},
			{"name": "pve2", "cluster": "lab", "host": "10.0.0.2"},
		],
	}
	f.failed(f.decided(here)) == {"protected"}
	f.decided(object.union(here, {"targets": {"nodes": ["pve2"]}})).allow
	"protected" in f.failed(f.decided(object.union(
		here,
		{
			"targets": {"nodes": ["pve2"]}, "tool": {"name": "run"},
			"commands": [f.cmd([["pvesh", "get", "/nodes/pve1/status"]])],
		},
	)))
	"protected" in f.failed(f.operated(object.union(
		object.union(here, {"target": {"node": "pve2", "host": "10.0.0.2"}}),
		f.run(["pvesh", "get", "/nodes/pve1/status"]),
	)))
	q := object.union(
		object.union(here, {"target": {
			"node": "pve2", "host": "10.0.0.2",
		}}),
		f.run(["uptime"]),
	)
	f.operated(q).allow
}

test_protected_node_in_a_path_of_a_call_counts if {
	"protected" in f.failed(f.decided({"targets": {"paths": ["/var/log/agent1/x"]}}))
}

test_protected_host_is_refused if {
	"protected" in f.failed(f.decided({"targets": {"hosts": ["192.168.1.61"]}}))
}

test_protected_service_is_refused_under_both_its_names if {
	every s in ["docker", "docker.service"] {
		f.failed(f.decided({"targets": {"services": [s]}})) == {"protected"}
	}
	f.decided({"targets": {"services": ["docker.socket"]}}).allow
}

test_service_is_protected_on_its_node_alone if {
	f.decided({"targets": {"services": ["docker.service"], "nodes": ["pve2"]}}).allow
	"protected" in f.failed(f.decided({"targets": {"services": ["corosync"], "nodes": ["pve2"]}}))
}

test_reads_pass_where_the_entry_says_so if {
	f.decided({"tool": {"name": "look"}, "targets": {"vmids": ["107"]}}).allow
	f.failed(f.decided({"targets": {"vmids": ["107"]}})) == {"protected"}
	"protected" in f.failed(f.decided({"tool": {"name": "look"}, "targets": {"vmids": ["103"]}}))
	f.decided({"tool": {"name": "look"}, "targets": {"nodes": ["quiet"]}}).allow
}

test_command_of_a_call_counts if {
	"protected" in f.failed(f.decided({
		"tool": {"name": "run"}, "commands": [f.cmd([["pct", "stop", "103"]])],
	}))
	"protected" in f.failed(f.decided({
		"tool": {"name": "run"}, "commands": [f.cmd([["systemctl", "restart", "docker"]])],
	}))
	"protected" in f.failed(f.decided({
		"tool": {"name": "run"},
		"commands": [f.cmd([["pvesh", "get", "/nodes/agent1/status"]])],
	}))
}

test_path_of_a_call_counts if {
	"protected" in f.failed(f.decided({"targets": {"paths": ["/var/log/pve/103.log"]}}))
}

# Every way in which a command can name guest 103.
test_guest_is_found_in_every_form if {
	every argv in [
		["pct", "status", "103"], ["qm", "config", "103"], [
			"pvesh", "get", "/nodes/pve1/lxc/103/status/current",
		],
		[
			"pvesh", "get", "/nodes/pve1/tasks", "--vmid", "103",
		],
		["pvesm", "list", "local", "--vmid", "103"],
		[
			"pvesh", "get",
			"/nodes/pve1/tasks/UPID:pve1:0000074C:0003E683:6B0178B1:vzstart:103:root@pam:/status",
		],
		["pvenode", "task", "log", "UPID:pve1:0000074C:0003E683:6B0178B1:vzstart:103:root@pam:"],
		["cat", "/etc/pve/lxc/103.conf"], [
			"cat", "/etc/pve/nodes/pve1/qemu-server/103.conf",
		],
		["ls", "/var/lib/vz/images/103"],
		["ls", "/var/log/vm-103-disk-0"], [
			"zfs", "list", "rpool/data/subvol-103-disk-0",
		],
		["cat", "/var/log/vzdump-lxc-103-2026.log"],
	] {
		"protected" in f.failed(f.operated(f.run(argv)))
	}
}

test_other_numbers_are_not_guests if {
	every argv in [
		["pct", "status", "1103"], ["tail", "-n", "103", "/var/log/syslog"],
		["pvesh", "get", "/nodes/pve1/tasks", "--limit", "103"],
	] {
		f.operated(f.run(argv)).allow
	}
}

test_node_is_found_in_every_form if {
	every argv in [
		[
			"pvesh", "get", "/nodes/agent1/status",
		],
		["pvenode", "wakeonlan", "agent1"], ["cat", "/etc/pve/nodes/agent1/config"],
		[
			"pvenode", "task", "status",
			"UPID:agent1:0000074C:0003E683:6B0178B1:vzstart:105:root@pam:",
		],
	] {
		"protected" in f.failed(f.operated(f.run(argv)))
	}
}

test_run_node_counts if {
	q := object.union({"target": {"node": "agent1"}}, f.run(["uptime"]))
	"protected" in f.failed(f.operated(q))
	r := object.union({"target": {"host": "192.168.1.61"}}, f.run(["uptime"]))
	"protected" in f.failed(f.operated(r))
	"protected" in f.failed(f.operated(object.union(
		{"target": {"addrs": [{"ip": "192.168.1.61", "class": "private"}]}},
		f.run(["uptime"]),
	)))
}

test_service_of_an_operation_counts if {
	every argv in [
		["systemctl", "restart", "docker"], ["systemctl", "status", "docker.service"],
		["journalctl", "-u", "docker"], ["systemctl", "restart", "--", "corosync"],
	] {
		"protected" in f.failed(f.operated(f.run(argv)))
	}
	f.operated(f.run(["systemctl", "status", "docker.socket"])).allow
}

test_files_of_an_operation_count if {
	"protected" in f.failed(f.operated(f.with_file(
		"sftp_read", "upload", "yellow",
		{
			"action": "read", "path": "/var/log/103/x", "real_path": "/var/log/103/x",
			"type": "file",
		},
	)))
	"protected" in f.failed(f.operated(f.with_file(
		"sftp_read", "upload", "yellow",
		{
			"action": "read", "path": "/var/log/x", "real_path": "/var/log/agent1/x",
			"type": "file",
		},
	)))
}

test_stage_that_happens_to_hold_the_number_is_no_guest if {
	f.operated(object.union(
		f.with_file(
			"sftp_put", "upload", "yellow",
			{
				"action": "put", "path": "/run/caponier/103/f", "real_path": "/run/caponier/103/f",
				"local": "in/x",
			},
		),
		{
			"parent": {"stages": [{"node": "pve1", "dir": "/run/caponier/103"}]},
			"tool": {"name": "upload"},
		},
	)).allow
}

test_addresses_of_a_request_count if {
	"protected" in f.failed(f.operated(f.with_http({"addrs": [
		{"ip": "192.168.1.61", "class": "global"},
	]})))
}

test_reads_of_an_operation_pass_where_the_entry_says_so if {
	f.operated(f.run(["pct", "status", "107"])).allow
	q := object.union({"parent": {"targets": {"vmids": ["107"]}}}, f.run(["pct", "stop", "107"]))
	"protected" in f.failed(f.operated(q))
}

# The units of a guest are that guest.
test_guest_is_found_in_the_name_of_a_unit if {
	every argv in [
		["systemctl", "status", "pve-container@103"], ["systemctl", "show", "103.scope"], [
			"journalctl", "-u", "pve-container@103.service",
		],
		["systemctl", "is-active", "pve-container-debug@103"],
	] {
		"protected" in f.failed(f.operated(f.run(argv)))
	}
	"protected" in f.failed(f.decided({"targets": {"services": ["pve-container@103.service"]}}))
	f.operated(f.run(["systemctl", "status", "pve-container@105"])).allow
	f.decided({"targets": {"services": ["pve-container@105.service"]}}).allow
}

# A site knows what the numbers of its own programs mean; core takes each for a guest.
test_every_number_of_a_program_of_the_site_may_be_a_guest if {
	own := {
		"binaries": {
			"mytool": {
				"purge": {
					"group": "read", "tier": "green", "operands": ["text*"],
					"options": {"--n": "count"},
				},
			},
		},
	}
	every argv in [
		["mytool", "purge", "103"], ["mytool", "purge", "105", "guest-103"],
		["mytool", "purge", "--n", "103"], ["mytool", "purge", "agent1"],
	] {
		"protected" in f.failed(f.operated_in(f.run(argv), own))
	}
	f.operated_in(f.run(["mytool", "purge", "105"]), own).allow
}

test_service_is_protected_under_its_aliases if {
	site := {
		"protected": {
			"services": [
				{"service": "sshd", "nodes": ["*"], "reason": "the way in"},
				{"service": "rsyslog.service", "nodes": ["*"], "reason": "the log"},
			],
		},
	}
	every name in ["ssh", "sshd", "ssh.service", "syslog"] {
		"protected" in f.failed(f.operated_in(f.run(["systemctl", "restart", name]), site))
		f.failed(f.decided_in({"targets": {"services": [name]}}, site)) == {"protected"}
	}
	login := {
		"protected": {
			"services": [{"service": "systemd-logind", "nodes": ["*"], "reason": "sessions"}],
		},
	}
	q := f.run(["systemctl", "status", "dbus-org.freedesktop.login1"])
	"protected" in f.failed(f.operated_in(q, login))
	f.operated_in(f.run(["systemctl", "status", "nginx"]), site).allow
}

test_every_node_among_others_is_every_node if {
	site := {
		"protected": {
			"services": [{"service": "nginx", "nodes": ["far", "*"], "reason": "front door"}],
		},
	}
	f.failed(f.decided_in({"targets": {"services": ["nginx"]}}, site)) == {"protected"}
}

test_protected_guest_is_not_shown if {
	f.failed(f.seen({"targets": {"vmids": ["103"]}})) == {"protected"}
}

test_other_guest_is_shown if f.seen({"targets": {"vmids": ["105"]}}).allow

# What shows a guest without its number alone.
test_guest_is_found_in_the_name_of_a_device if {
	every argv in [
		[
			"ip", "link", "show", "veth103i0",
		],
		["ip", "addr", "show", "tap103i0"], ["ip", "link", "show", "fwbr103i1"],
		["lsblk", "/dev/disk/by-id/dm-name-pve-vm--103--disk--0"], [
			"cat", "/sys/devices/virtual/net/veth103i0/statistics/rx_bytes",
		],
	] {
		"protected" in f.failed(f.operated(f.run(argv)))
	}
}

# systemctl takes a number for a process, and shows the unit that it is in.
test_a_process_is_no_unit if {
	every sub in ["status", "show", "is-active"] {
		"command" in f.failed(f.operated(f.run(["systemctl", sub, "41235"])))
	}
}

own(word) := f.operated_in(
	{
		"command": f.cmd([["talk", word]]), "tool": {"name": "look"},
		"parent": {"tool": "look", "tier": "green"},
	},
	{
		"binaries": {
			"talk": {"": {"group": "read", "tier": "green", "operands": ["text"], "options": {}}},
		},
	},
)

test_any_part_of_a_word_of_a_program_of_the_site_may_name_what_is_protected if {
	every word in [
		"root@agent1", "agent1", "ssh://agent1:22/x", "192.168.1.61", "root@192.168.1.61",
		"to=192.168.1.61", "docker.service", "docker", "vm103", "ct=103",
	] {
		"protected" in f.failed(own(word))
	}
	own("hello").allow
}

# Two entries of the inventory for one machine.
test_node_is_protected_by_each_of_its_names if {
	twins := {"nodes": [
		{"name": "agent1", "cluster": "lab", "host": "a.lab", "aliases": ["pve1"]},
		{"name": "pve1", "cluster": "lab", "host": "a.lab", "aliases": ["agent1"]},
	]}
	"protected" in f.failed(f.decided(twins))
	"protected" in f.failed(f.operated(object.union(twins, f.run(["uptime"]))))
}

test_unit_is_protected_by_each_name_of_the_node if {
	site := {"protected": {"services": [{"service": "shop", "nodes": ["*"], "reason": "the shop"}]}}
	q := f.run(["systemctl", "restart", "web"])
	op := object.union(q, {"target": {"services": ["shop.service"]}})
	"protected" in f.failed(f.operated_in(op, site))
}

test_site_without_one_of_its_lists_refuses_everything if {
	every key in ["nodes", "vmids", "hosts", "services"] {
		every value in [null, "", 0, false] {
			d := f.decided_in({}, {"protected": {key: value}})
			"protected" in f.failed(d)
		}
	}
}

# Alias= in the units of Debian's and Proxmox's packages.
test_service_is_protected_under_the_aliases_of_its_package if {
	every pair in [
		["ntpsec", "ntp"], ["ntpsec", "ntpd"], ["open-vm-tools", "vmtoolsd"],
		["pve-guests", "pve-manager"],
	] {
		site := {
			"protected": {"services": [{"service": pair[0], "nodes": ["*"], "reason": "kept"}]},
		}
		"protected" in f.failed(f.operated_in(f.run(["systemctl", "status", pair[1]]), site))
	}
}
