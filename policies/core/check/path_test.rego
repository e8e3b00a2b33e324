package caponier.core.check.path_test

import data.caponier.core.fixture as f

test_call_may_name_what_is_listed if {
	f.decided({"targets": {"paths": ["/var/log/syslog"]}}).allow
	f.decided({"targets": {"paths": ["/srv/in/a"]}}).allow
	f.decided({"targets": {"paths": ["/etc/hosts"]}}).allow
}

test_call_may_not_name_what_is_not_listed if {
	d := f.decided({"targets": {"paths": ["/opt/x"]}})
	f.failed(d) == {"path"}
	contains(d.deny[0].msg, "path /opt/x is outside")
}

test_a_prefix_is_a_folder_not_a_beginning if {
	f.failed(f.decided({"targets": {"paths": ["/var/logs"]}})) == {"path"}
}

test_secrets_stay_closed_even_if_listed if {
	every p in [
		"/etc/shadow", "/root/.ssh/id_ed25519", "/etc/pve/priv/authkey.key",
		"/etc/ssh/ssh_host_rsa_key", "/home/a/.bash_history",
		"/etc/ssl/private/x.pem", "/proc/1/environ", "/home/a/.env", "/srv/in/.ssh/authorized_keys",
		"/var/backups/shadow.bak", "/var/backups/gshadow", "/etc/corosync/authkey",
		"/etc/ceph/ceph.client.admin.keyring", "/etc/wireguard/wg0.conf",
		"/etc/proxmox-backup/shadow.json", "/etc/pve/nodes/pve1/priv/x",
	] {
		f.failed(f.decided_in({"targets": {"paths": [p]}}, {"files": {
			"read": ["/"], "write": ["/"],
		}})) == {"path"}
	}
}

test_command_reads_what_is_listed if {
	f.operated(f.run(["tail", "-n", "50", "/var/log/syslog"])).allow
	f.operated(f.run(["ls", "-la", "/var/log"])).allow
}

test_command_may_not_read_elsewhere if {
	every p in ["/root/x", "/var/log/../../etc/shadow", "/var/logs/x", "/var/log/./x"] {
		"path" in f.failed(f.operated(f.run(["cat", p])))
	}
}

test_command_of_a_call_is_held_to_the_same if {
	f.decided({"tool": {"name": "run"}, "commands": [f.cmd([["cat", "/etc/hosts"]])]}).allow
	d := f.decided({"tool": {"name": "run"}, "commands": [f.cmd([["cat", "/root/x"]])]})
	f.failed(d) == {"path"}
	contains(d.deny[0].msg, "path /root/x is outside")
}

test_call_has_no_stage_yet if {
	"path" in f.failed(f.decided({
		"tool": {"name": "run"},
		"commands": [f.cmd([["sha256sum", "--", "/run/caponier/s1/f"]])],
	}))
	"path" in f.failed(f.decided({
		"tool": {"name": "run"},
		"commands": [
			f.cmd([["pct", "push", "105", "--", "/run/caponier/s1/f", "/root/x"]]),
		],
	}))
}

# The node follows links in what a command names.
test_command_names_what_is_listed_or_directly_in_it if {
	site := {"files": {"read": ["/var/log", "/etc/hosts", "/sys/class/thermal"]}}
	every p in [
		"/etc/hosts", "/var/log", "/var/log/syslog", "/sys/class/thermal/thermal_zone0/temp",
	] {
		f.operated_in(f.run(["cat", p]), site).allow
		f.decided_in({"tool": {"name": "run"}, "commands": [f.cmd([["cat", "--", p]])]}, site).allow
	}
	every p in ["/var/log/app/link", "/var/log/a/b/c", "/etc/hosts/x/y"] {
		f.failed(f.operated_in(f.run(["cat", p]), site)) == {"path"}
		q := f.cmd([["tail", p]])
		f.failed(f.decided_in({"tool": {"name": "run"}, "commands": [q]}, site)) == {"path"}
	}
	f.operated_in(
		f.with_file(
			"sftp_read", "upload", "yellow",
			{
				"action": "read", "path": "/var/log/app/x", "real_path": "/var/log/app/x",
				"type": "file",
			},
		),
		site,
	).allow
}

upload := {
	"tool": {"name": "upload"},
	"parent": {"tool": "upload", "tier": "red", "targets": {"guest_paths": ["/root/x"]}},
}

# A download is yellow and names a path of the guest too: it must not write there.
test_writing_into_a_guest_is_red if {
	push := f.run(["pct", "push", "105", "--", "/run/caponier/s1/f", "/root/x"])
	f.operated(object.union(upload, push)).tier == "red"
	f.failed(f.operated(object.union(
		upload,
		object.union(
			push,
			{
				"parent": {
					"tool": "upload", "tier": "yellow",
					"targets": {"guest_paths": ["/root/x"]},
				},
			},
		),
	))) == {"tier"}
}

test_writing_into_a_relaxed_guest_is_yellow if {
	parent := {
		"parent": {
			"tool": "upload", "tier": "yellow",
			"targets": {"vmids": ["104"], "guest_paths": ["/root/x"]},
		},
	}
	d := f.operated(object.union(
		object.union(upload, parent),
		f.run(["pct", "push", "104", "--", "/run/caponier/s1/f", "/root/x"]),
	))
	d.tier == "yellow"
	d.allow
}

test_transfer_between_stage_and_guest_passes if {
	f.operated(object.union(
		upload,
		f.run([
			"pct", "push", "105", "--perms", "0644", "--user", "0", "--group", "0", "--",
			"/run/caponier/s1/f", "/root/x",
		]),
	)).allow
	q := object.union(upload, f.run(["pct", "pull", "105", "--", "/root/x", "/run/caponier/s1/f"]))
	f.operated(q).allow
	f.operated(object.union(upload, f.run(["sha256sum", "--", "/run/caponier/s1/f"]))).allow
	f.operated(object.union(upload, f.run(["stat", "-c", "%s", "--", "/run/caponier/s1/f"]))).allow
}

test_transfer_outside_the_stage_is_refused if {
	every p in [
		"/etc/passwd", "/run/caponier/s2/f", "/run/caponier/s1/../f", "/run/caponier/s1",
		"/run/caponier/s10/f", "/run/caponier/s1/",
	] {
		q := object.union(upload, f.run(["pct", "push", "105", "--", p, "/root/x"]))
		f.failed(f.operated(q)) & {"path", "command"} != set()
		r := object.union(upload, f.run(["pct", "pull", "105", "--", "/root/x", p]))
		f.failed(f.operated(r)) & {"path", "command"} != set()
	}
}

test_stage_of_another_node_does_not_count if {
	"path" in f.failed(f.operated(object.union(
		object.union(upload, {"target": {"node": "pve2"}}),
		f.run(["sha256sum", "--", "/run/caponier/s1/f"]),
	)))
}

test_guest_path_that_the_call_does_not_name_is_refused if {
	q := object.union(upload, f.run([
		"pct", "pull", "105", "--", "/etc/shadow", "/run/caponier/s1/f",
	]))
	d := f.operated(q)
	f.failed(d) == {"path"}
	contains(d.deny[0].msg, "path /etc/shadow is outside")
}

test_path_is_no_longer_than_linux_takes if {
	part := sprintf("/%0250d", [1])
	long := concat(part, split(sprintf("%018d", [0]), ""))
	f.decided({"targets": {"paths": [concat("", ["/var/log", part])]}}).allow
	d := f.decided({"targets": {"paths": [concat("", ["/var/log/", long])]}})
	f.failed(d) == {"path", "target"}
}
