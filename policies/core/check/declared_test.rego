package caponier.core.check.declared_test

import data.caponier.core.fixture as f

declares(commands) := {"tool": {"commands": commands}}

both := script("pct status 105; pct stop 105", [["pct", "status", "105"], ["pct", "stop", "105"]])

script(text, calls) := {"command": object.union(f.cmd(calls), {"form": "script", "text": text})}

text := {
	"tool": {"name": "run", "commands": ["*"]},
	"parent": {"tool": "run", "commands": [both.command]},
}

test_declared_command_passes if {
	q := object.union(declares(["pct start", "pct stop"]), f.run(["pct", "stop", "105"]))
	f.operated(q).allow
}

test_command_that_is_not_declared_is_refused_and_named if {
	d := f.operated(object.union(declares(["pct start"]), f.run(["pct", "stop", "105"])))
	f.failed(d) == {"declared"}
	contains(d.deny[0].msg, "only the plugin's author can declare the command")
	contains(d.deny[0].msg, "stop runs pct stop, and declares pct start")
}

test_green_read_is_held_to_it_too if {
	q := object.union(declares(["pct start"]), f.run(["pct", "status", "105"]))
	f.failed(f.operated(q)) == {"declared"}
}

test_no_declaration_is_no_command if {
	f.failed(f.operated(object.union(declares([]), f.run(["pct", "stop", "105"])))) == {"declared"}
}

test_declaration_of_another_type_does_not_count if {
	every odd in [null, "pct stop", {"pct stop": true}] {
		q := object.union(declares(odd), f.run(["pct", "stop", "105"]))
		"declared" in f.failed(f.operated(q))
	}
}

test_one_of_two_is_not_enough if {
	d := f.operated(object.union(declares(["pct status"]), both))
	f.failed(d) == {"declared"}
	contains(d.deny[0].msg, "runs pct stop, and ")
	f.operated(object.union(declares(["pct status", "pct stop"]), both)).allow
}

test_group_or_prefix_declares_nothing if {
	every c in [
		"lifecycle", "pct", "pct sto", "pct stop ", "pct  stop", "PCT STOP", "pct stop 105",
		"pct *",
	] {
		q := object.union(declares([c]), f.run(["pct", "stop", "105"]))
		f.failed(f.operated(q)) == {"declared"}
	}
}

test_each_command_for_one_effect_must_be_declared if {
	api := f.run(["pvesh", "create", "/nodes/pve1/lxc/105/status/stop"])
	f.failed(f.operated(object.union(declares(["pct stop"]), api))) == {"declared"}
	q := object.union(declares(["pvesh create /nodes/{node}/lxc/{vmid}/status/stop"]), api)
	f.operated(q).allow
	r := object.union(declares(["pvesh create /nodes/{node}/lxc/{vmid}/status/start"]), api)
	f.failed(f.operated(r)) == {"declared"}
}

test_program_of_the_site_is_declared_by_its_entry if {
	f.operated(object.union(declares(["mytool show"]), f.run(["mytool", "show", "105"]))).allow
	q := object.union(declares(["mytool"]), f.run(["mytool", "show", "105"]))
	f.failed(f.operated(q)) == {"declared"}
}

test_text_of_the_call_is_run_as_it_was_decided if f.operated(object.union(text, both)).allow

test_any_is_the_text_of_the_call_and_no_other_command if {
	d := f.operated(object.union(text, f.run(["pct", "reboot", "105"])))
	f.failed(d) == {"declared"}
	contains(d.deny[0].msg, "run runs pct reboot, and declares *")
}

test_part_of_the_text_is_another_text if {
	q := object.union(text, script("pct stop 105", [["pct", "stop", "105"]]))
	f.failed(f.operated(q)) == {"declared"}
	f.failed(f.operated(object.union(text, f.run(["pct", "stop", "105"])))) == {"declared"}
}

test_text_joined_in_another_way_is_another_text if {
	f.failed(f.operated(object.union(
		text,
		script(
			"pct status 105 || pct stop 105",
			[["pct", "status", "105"], ["pct", "stop", "105"]],
		),
	))) == {"declared"}
}

test_no_text_is_no_text if {
	q := object.union(both.command, {"text": ""})
	empty := object.union(text, {"parent": {"commands": [q]}})
	f.failed(f.operated(object.union(empty, f.run(["pct", "stop", "105"])))) == {"declared"}
}

test_text_is_run_only_by_a_tool_that_declares_it if {
	mute := object.union(text, {"tool": {"name": "run", "commands": ["pct status"]}})
	f.failed(f.operated(object.union(mute, both))) == {"declared"}
}

test_text_for_a_guest_is_not_run_on_the_node if {
	guest := object.union(both.command, {"guest": true, "text": "pct status 105; pct stop 105"})
	q := object.union(object.union(text, {"parent": {"commands": [guest]}}), both)
	f.failed(f.operated(q)) == {"declared"}
}

test_tool_may_declare_commands_beside_the_text if {
	q := object.union(
		object.union(text, declares([
			"*", "pct reboot",
		])),
		f.run(["pct", "reboot", "105"]),
	)
	f.operated(q).allow
}

test_file_is_no_command if {
	f.operated(object.union(
		f.with_file(
			"sftp_read", "stop", "yellow",
			{
				"action": "read", "path": "/var/log/x", "real_path": "/var/log/x",
				"exists": true, "type": "file",
			},
		),
		declares([]),
	)).allow
}
