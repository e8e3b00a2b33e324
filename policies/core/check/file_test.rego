package caponier.core.check.file_test

import data.caponier.core.fixture as f

up(op, x) := f.operated(f.with_file(op, "upload", "yellow", x))

# A tool of the host itself declares paths.
host(op, x, paths) := f.operated(object.union(
	f.with_file(op, "host", "red", x),
	{"tool": {"target_kinds": ["paths", "local_paths"]}, "parent": {"targets": {"paths": paths}}},
))

test_stage_passes if {
	up("stage", {"action": "stage", "path": "", "real_path": null}).tier == "yellow"
}

test_put_into_the_stage_is_yellow if {
	up("sftp_put", {"action": "put", "local": "in/x"}).tier == "yellow"
}

test_get_from_the_stage_passes if {
	up("sftp_get", {"action": "get", "local": "in/x", "exists": true, "type": "file"}).allow
}

test_lookup_needs_no_facts if {
	d := f.operated(object.union(
		f.with_file(
			"sftp_put", "upload", "yellow",
			{
				"action": "put", "local": "in/x", "real_path": null, "type": null, "exists": null,
				"bytes": null,
			},
		),
		{"phase": "lookup"},
	))
	d.allow
}

test_effect_without_facts_is_refused if {
	f.failed(up("sftp_put", {"action": "put", "local": "in/x", "real_path": null})) == {"file"}
	f.failed(up("sftp_put", {"action": "put", "local": "in/x", "bytes": null})) == {"file"}
	f.failed(up("sftp_get", {"action": "get", "local": "in/x", "type": null})) == {"file"}
}

test_local_path_must_be_the_calls if {
	d := up("sftp_put", {"action": "put", "local": "in/other"})
	f.failed(d) == {"file"}
	contains(d.deny[0].msg, "local path in/other is not one of the call's")
}

test_write_outside_the_stage_is_red if {
	up(
		"sftp_put",
		{"action": "put", "local": "in/x", "path": "/srv/in/a", "real_path": "/srv/in/a"},
	).tier == "red"
}

test_tool_that_declares_no_paths_writes_only_into_its_stage if {
	f.failed(f.operated(f.with_file(
		"sftp_put", "host", "red",
		{"action": "put", "local": "in/x", "path": "/srv/in/a", "real_path": "/srv/in/a"},
	))) == {"file"}
}

test_tool_that_declares_paths_writes_to_those_of_its_call if {
	x := {"action": "put", "local": "in/x", "path": "/srv/in/a", "real_path": "/srv/in/a"}
	host("sftp_put", x, ["/srv/in/a"]).allow
	f.failed(host("sftp_put", x, ["/srv/in/b"])) == {"file"}
	q := object.union(x, {"path": "/opt/a", "real_path": "/opt/a"})
	f.failed(host("sftp_put", q, ["/opt/a"])) == {"file"}
}

test_real_path_may_not_lie_elsewhere if {
	d := host(
		"sftp_put",
		{"action": "put", "local": "in/x", "path": "/srv/in/a", "real_path": "/etc/cron.d/a"},
		["/srv/in/a"],
	)
	f.failed(d) == {"file"}
	contains(d.deny[0].msg, "it really is /etc/cron.d/a, which is elsewhere")
	f.failed(up("sftp_put", {"action": "put", "local": "in/x", "real_path": "/etc/x"})) == {"file"}
	f.failed(up(
		"sftp_read",
		{"action": "read", "path": "/var/log/x", "real_path": "/root/x", "type": "file"},
	)) == {"file"}
}

test_link_into_the_stage_is_elsewhere_too if {
	f.failed(up(
		"sftp_read",
		{
			"action": "read", "path": "/var/log/x", "real_path": "/run/caponier/s1/f",
			"type": "file",
		},
	)) == {"file"}
}

test_reading_is_green_and_may_look_wider if {
	up(
		"sftp_read",
		{"action": "read", "path": "/var/log/x", "real_path": "/var/log/x", "type": "file"},
	).tier == "green"
	up("sftp_stat", {"action": "stat", "path": "/var/log/x", "real_path": "/var/log/x"}).allow
	up("sftp_list", {
		"action": "list", "path": "/var/log", "real_path": "/var/log", "type": "dir",
	}).allow
}

test_tool_that_declares_paths_reads_those_of_its_call if {
	x := {"action": "read", "path": "/var/log/x", "real_path": "/var/log/x", "type": "file"}
	host("sftp_read", x, ["/var/log/x"]).allow
	f.failed(host("sftp_read", x, ["/var/log/y"])) == {"file"}
}

test_folder_of_a_path_of_the_call_may_be_listed if {
	host(
		"sftp_list", {"action": "list", "path": "/var/log", "real_path": "/var/log", "type": "dir"},
		["/var/log/x"],
	).allow
	f.failed(host(
		"sftp_list",
		{"action": "list", "path": "/var/log", "real_path": "/var/log", "type": "dir"},
		["/etc/hosts"],
	)) == {"file"}
}

tree(op, x, kinds) := f.operated(object.union(
	f.with_file(op, "host", "red", object.union({"type": "file", "exists": true}, x)),
	{
		"tool": {"target_kinds": kinds},
		"parent": {"targets": {"paths": ["/var/log/a"], "local_paths": ["out"]}},
	},
))

whole := ["paths", "local_paths", "trees"]

at(path, local) := {"action": "get", "path": path, "real_path": path, "local": local}

test_tool_that_declares_a_folder_reads_below_it if {
	tree("sftp_get", at("/var/log/a/b/c", "out/b/c"), whole).allow
	list := {"action": "list", "path": "/var/log/a/b", "real_path": "/var/log/a/b", "type": "dir"}
	tree("sftp_list", list, whole).allow
}

test_tool_that_declares_a_folder_reads_nothing_beside_it if {
	every x in [
		at("/var/log/ab", "out/b"), at("/var/log/b", "out/b"), at("/var/log/a/../b", "out/b"),
		at("/var/log/a/b", "out2/b"), at("/var/log/a/b", "out/../b"), at("/var/log/a/b", "b"),
		object.union(at("/var/log/a/b", "out/b"), {"real_path": "/root/b"}),
		at("/var/log/a/.ssh/b", "out/b"),
	] {
		f.failed(tree("sftp_get", x, whole)) == {"file"}
	}
}

test_only_a_declared_folder_stands_for_what_is_below if {
	d := tree("sftp_get", at("/var/log/a/b", "out/b"), ["paths", "local_paths"])
	f.failed(d) == {"file"}
}

# sent is a put of a call whose tool declares folders, /srv/in/a and in of the workspace.
sent(x, kinds) := f.operated(object.union(
	f.with_file("sftp_put", "host", "red", object.union(
		{
			"action": "put", "path": "/srv/in/a/b/c", "real_path": "/srv/in/a/b/c",
			"local": "in/b/c", "exists": false, "parents": true,
		},
		x,
	)),
	{
		"tool": {"target_kinds": kinds},
		"parent": {"targets": {"paths": ["/srv/in/a"], "local_paths": ["in"]}},
	},
))

test_tool_that_declares_a_folder_uploads_below_it if {
	sent({}, whole).allow
	sent({"parents": false}, whole).allow
}

test_tool_that_declares_a_folder_uploads_nothing_beside_it if {
	every x in [
		{"path": "/srv/in/ab", "real_path": "/srv/in/ab"}, {"path": "/srv/in/b"},
		{"path": "/srv/in/a/../b"}, {"real_path": "/root/c"}, {"local": "in2/c"},
		{"local": "in/../c"}, {"local": "c"}, {"exists": true, "type": "file"},
		{"parents": null},
	] {
		f.failed(sent(x, whole)) == {"file"}
	}
	f.failed(sent({"parents": false}, ["paths", "local_paths"])) == {"file"}
}

test_directories_are_made_for_declared_folders_alone if {
	own := {"path": "/srv/in/a", "real_path": "/srv/in/a", "local": "in"}
	sent(object.union(own, {"parents": false}), ["paths", "local_paths"]).allow
	d := sent(own, ["paths", "local_paths"])
	f.failed(d) == {"file"}
	contains(d.deny[0].msg, "directories are made only below a folder that the call names")
}

test_nothing_is_changed_below_a_declared_folder_but_by_uploads if {
	every op, action in {"sftp_write": "write", "sftp_remove": "remove"} {
		x := {
			"action": action, "path": "/srv/in/a/b", "real_path": "/srv/in/a/b",
			"exists": action == "remove",
		}
		"file" in f.failed(f.operated(object.union(
			f.with_file(op, "host", "red", x),
			{
				"tool": {"target_kinds": whole},
				"parent": {"targets": {"paths": ["/srv/in/a"], "local_paths": ["in"]}},
			},
		)))
	}
}

test_only_plain_files_are_read if {
	every type in ["dir", "fifo", "device", "socket", "symlink", ""] {
		f.failed(up(
			"sftp_read",
			{"action": "read", "path": "/var/log/x", "real_path": "/var/log/x", "type": type},
		)) == {"file"}
	}
	f.failed(up(
		"sftp_list",
		{"action": "list", "path": "/var/log", "real_path": "/var/log", "type": "file"},
	)) == {"file"}
}

test_overwriting_must_be_asked_for if {
	x := {"action": "put", "local": "in/x", "exists": true, "type": "file"}
	d := up("sftp_put", x)
	f.failed(d) == {"file"}
	contains(d.deny[0].msg, "overwriting was not asked for")
	up("sftp_put", object.union(x, {"overwrite": true})).allow
	f.failed(up("sftp_put", object.union(x, {"overwrite": true, "type": "dir"}))) == {"file"}
}

test_size_is_limited_both_ways if {
	up("sftp_put", {"action": "put", "local": "in/x", "bytes": 1000}).allow
	d := up("sftp_put", {"action": "put", "local": "in/x", "bytes": 1001})
	f.failed(d) == {"file"}
	contains(d.deny[0].msg, "it is 1001 bytes, over the limit of 1000")
	f.failed(up(
		"sftp_get",
		{"action": "get", "local": "in/x", "exists": true, "type": "file", "bytes": 1001},
	)) == {"file"}
	f.failed(up("sftp_write", {"action": "write", "bytes": -1})) == {"file"}
}

test_removal_is_of_one_plain_file_in_the_stage if {
	up("sftp_remove", {"action": "remove", "exists": true, "type": "file"}).allow
	f.failed(up("sftp_remove", {"action": "remove", "exists": true, "type": "dir"})) == {"file"}
	"file" in f.failed(up(
		"sftp_remove",
		{
			"action": "remove", "path": "/etc/hosts", "real_path": "/etc/hosts", "exists": true,
			"type": "file",
		},
	))
}

test_paths_that_run_the_machine_cannot_be_written if {
	every p in [
		"/usr/local/bin/a", "/usr/local/sbin/a", "/usr/share/perl5/PVE/a", "/var/lib/vz/snippets/a",
		"/etc/network/if-up.d/a", "/etc/udev/rules.d/a", "/etc/lxc/a", "/etc/default/a",
		"/etc/cron.d/a", "/usr/bin/a", "/etc/pve/lxc/1.conf", "/srv/.profile",
		"/etc/ssh/sshd_config",
	] {
		d := f.operated_in(
			object.union(
				f.with_file(
					"sftp_put", "host", "red",
					{"action": "put", "local": "in/x", "path": p, "real_path": p},
				),
				{
					"tool": {"target_kinds": ["paths", "local_paths"]},
					"parent": {"targets": {"paths": [p]}},
				},
			),
			{"files": {"write": ["/"]}},
		)
		"file" in f.failed(d)
	}
}

copy(local, paths) := f.operated({
	"op": "blob_read", "target": null, "tool": {"imports": ["blob_read"]}, "parent": {
		"targets": {"local_paths": paths},
	},
	"blob": {"action": "get", "name": "x", "mime": "", "bytes": 0, "ttl_s": 0, "local": local},
})

test_a_blob_is_copied_to_the_calls_own_folder if {
	copy("out/a", ["out"]).tier == "yellow"
	copy("out", ["out"]).allow
}

test_a_blob_is_copied_nowhere_else if {
	d := copy("other/a", ["out"])
	f.failed(d) == {"file"}
	contains(d.deny[0].msg, "local path other/a is not in one of the call's")
	f.failed(copy("out2/a", ["out"])) == {"file"}
	f.failed(copy("out/../a", ["out"])) == {"file"}
	f.failed(copy("out/a", [])) == {"file"}
	f.failed(copy("", [""])) == {"file"}
}
