package caponier.core.check.tier_test

import data.caponier.core.fixture as f

test_black_tool_never_runs if {
	"tier" in f.failed(f.decided({
		"tool": {"name": "never"},
		"confirmation": {"state": "approved", "by": "bob", "channel": "cli"},
	}))
}

test_black_tool_is_not_shown if f.failed(f.seen({"tool": {"name": "never"}})) == {"tier"}

test_red_tool_is_shown if f.seen({"tool": {"name": "kill"}}).tier == "red"

test_operation_above_its_call_is_refused if {
	q := object.union({"parent": {"tier": "green"}}, f.run(["pct", "stop", "105"]))
	f.failed(f.operated(q)) == {"tier"}
}

test_operation_as_high_as_its_call_passes if {
	f.operated(f.run(["pct", "stop", "105"])).tier == "yellow"
}

test_parent_without_a_tier_is_refused if {
	"tier" in f.failed(f.operated(object.union({"parent": {"tier": ""}}, f.run(["pct", "list"]))))
}

test_black_command_never_runs if {
	"tier" in f.failed(f.operated(object.union({"parent": {"tier": "black"}}, f.run(["reboot"]))))
}

test_the_site_raises_a_command if {
	q := object.union({"parent": {"tier": "red"}}, f.run(["qm", "stop", "105"]))
	f.operated(q).tier == "red"
}

test_command_of_a_relaxed_guest_keeps_the_grammars_tier if {
	q := object.union({"parent": {"targets": {"vmids": ["104"]}}}, f.run(["qm", "stop", "104"]))
	f.operated(q).tier == "yellow"
}

test_call_is_as_high_as_its_command if {
	f.decided({
		"tool": {"name": "run"}, "commands": [f.cmd([["uptime"], ["qm", "stop", "105"]])],
	}).tier == "red"
}

test_relaxed_tool_is_yellow_for_relaxed_guests_alone if {
	f.decided({"tool": {"name": "kill"}, "targets": {"vmids": ["104"]}}).tier == "yellow"
	f.decided({"tool": {"name": "kill"}, "targets": {"vmids": ["104", "105"]}}).tier == "red"
	f.decided({"tool": {"name": "kill"}, "targets": {"vmids": []}}).tier == "red"
}

test_text_for_a_guest_is_yellow_at_least if {
	f.decided({"tool": {"name": "look"}, "commands": [f.raw_cmd("ls")]}).tier == "yellow"
}

test_an_operation_of_no_kind_is_black if f.operated({}).tier == "black"

test_writes_over_http_are_yellow if {
	f.operated(f.with_http({"method": "POST"})).tier == "yellow"
	f.operated(f.with_http({})).tier == "green"
}

on_services(words) := {
	"tool": {"name": "host"},
	"parent": {"tool": "host", "tier": "red", "targets": {"services": words}},
}

# Targets, scopes, slices and instances are guests and power by another name.
test_only_plain_services_are_started_and_stopped if {
	every verb in ["start", "restart", "reload", "stop"] {
		every unit in [
			"reboot.target", "poweroff.target", "pve-container@105", "pve-container@105.service",
			"105.scope", "qemu.slice", "nginx.socket",
			"backup.timer", "dbus-org.freedesktop.login1.service", "-.mount", "",
		] {
			q := object.union(on_services([unit]), f.run(["systemctl", verb, "--", unit]))
			"command" in f.failed(f.operated(q))
		}
		"command" in f.failed(f.operated(f.run([
			"pvesh", "create", "/nodes/pve1/services/pve-container@105/restart",
		])))
		every unit in ["nginx", "nginx.service"] {
			f.operated(object.union(on_services([unit]), f.run(["systemctl", verb, unit]))).allow
		}
	}
}

test_services_that_are_power_or_guests_are_black if {
	every unit in [
		"systemd-poweroff", "systemd-reboot.service", "pve-guests", "debug-shell", "kexec",
		"watchdog-mux", "emergency",
	] {
		d := f.operated(object.union(on_services([unit]), f.run(["systemctl", "start", unit])))
		d.tier == "black"
		f.failed(d) == {"tier"}
	}
	f.decided({
		"tool": {"name": "run"},
		"commands": [f.cmd([["systemctl", "start", "systemd-poweroff"]])],
	}).tier == "black"
}

test_services_that_the_cluster_stands_on_are_red if {
	every unit in ["pve-cluster", "lxcfs.service"] {
		q := object.union(on_services([unit]), f.run(["systemctl", "restart", unit]))
		f.operated(q).tier == "red"
		f.failed(f.operated(object.union(
			object.union(on_services([unit]), {"parent": {"tier": "yellow"}}),
			f.run(["systemctl", "restart", unit]),
		))) == {"tier"}
	}
	f.operated(object.union(
		on_services(["pve-cluster"]),
		f.run(["pvesh", "create", "/nodes/pve1/services/pve-cluster/restart"]),
	)).tier == "red"
	f.operated(object.union(
		on_services(["pveproxy"]),
		f.run(["pvesh", "create", "/nodes/pve1/services/pveproxy/restart"]),
	)).tier == "yellow"
	f.operated(f.run(["systemctl", "status", "pve-cluster"])).tier == "green"
}

# "pct start", "qm start" and the API's own start are one effect.
test_group_that_the_site_raises_is_raised_by_every_name if {
	red := {"commands": {"lifecycle": {"tier": "red"}}}
	every argv in [
		["pct", "stop", "105"], ["qm", "start", "105"], [
			"pvesh", "create", "/nodes/pve1/lxc/105/status/start",
		],
		["pvesh", "create", "/nodes/pve1/qemu/105/status/reboot", "--timeout", "9"],
	] {
		d := f.operated_in(f.run(argv), red)
		d.tier == "red"
		f.failed(d) == {"tier"}
	}
	f.operated_in(f.run(["pct", "snapshot", "105", "ab"]), red).tier == "yellow"
}

test_entry_may_be_higher_than_its_group if {
	q := f.run(["pct", "stop", "105"])
	f.operated_in(q, {"commands": {"pct stop": {"tier": "black"}}}).tier == "black"
}

test_relaxed_guests_are_spared_what_the_site_adds if {
	red := {"commands": {"lifecycle": {"tier": "red"}}}
	f.operated_in(
		object.union({"parent": {"targets": {"vmids": ["104"]}}}, f.run(["pct", "stop", "104"])),
		red,
	).tier == "yellow"
}

blob(action) := {
	"op": "blob_read", "target": null, "tool": {"imports": ["blob_read"]},
	"parent": {"targets": {"local_paths": ["a"]}},
	"blob": {"action": action, "name": "x", "mime": "", "bytes": 0, "ttl_s": 0, "local": "a"},
}

test_reading_a_blob_is_green if f.operated(blob("read")).tier == "green"

test_a_copy_in_the_workspace_is_yellow if f.operated(blob("get")).tier == "yellow"

test_a_copy_in_the_workspace_is_above_a_green_call if {
	f.failed(f.operated(object.union({"parent": {"tier": "green"}}, blob("get")))) == {"tier"}
}

test_an_action_on_blobs_that_is_not_known_is_black if f.operated(blob("move")).tier == "black"

test_tool_that_turned_black_stops_its_running_calls if {
	d := f.operated_in(f.run(["pct", "status", "105"]), {"tiers": {"tool:stop": "black"}})
	f.failed(d) == {"tier"}
	startswith(d.deny[0].msg, "tool:stop is black · tiers/tool:stop · nothing")
}

test_service_that_is_too_high_is_named if {
	d := f.operated(object.union(
		{
			"tool": {"name": "host"},
			"parent": {"tool": "host", "tier": "yellow", "targets": {"services": ["ssh.service"]}},
		},
		f.run(["systemctl", "restart", "--", "ssh.service"]),
	))
	f.failed(d) == {"tier"}
	startswith(d.deny[0].msg, "ssh.service is red and host is yellow · ")
}
