package caponier.core.scope_test

import data.caponier.core.fixture as f
import data.caponier.core.scope

# What the role of ann lists, beside what it grants.
ann(narrow) := {"roles": {"operator": narrow}}

allowed(change, narrow) if f.decided_in(change, ann(narrow)).allow

done(change, narrow) if f.operated_in(change, ann(narrow)).allow

run(calls) := {
	"tool": {"name": "run", "target_kinds": ["commands"]}, "targets": {"vmids": []},
	"commands": [f.cmd(calls)],
}

test_a_key_that_is_not_there_narrows_nothing if allowed({}, {})

test_a_listed_guest_passes_and_another_does_not if {
	allowed({}, {"guests": ["105"]})
	f.failed(f.decided_in({}, ann({"guests": ["106"]}))) == {"scope"}
	f.failed(f.decided_in({}, ann({"guests": []}))) == {"scope"}
	f.failed(f.decided_in({}, ann({"guests": null}))) == {"scope"}
}

test_guests_are_seen_in_words if {
	allowed(run([["pct", "status", "105"]]), {"guests": ["105"]})
	every argv in [
		["pct", "status", "106"], ["systemctl", "status", "pve-container@106"],
		["pvesh", "get", "/nodes/pve1/lxc/106/status/current"],
	] {
		f.failed(f.decided_in(run([argv]), ann({"guests": ["105"]}))) == {"scope"}
	}
}

test_services_have_one_name if {
	every name in ["nginx", "nginx.service"] {
		allowed(run([["systemctl", "restart", name]]), {"services": ["nginx"]})
		allowed(run([["systemctl", "restart", "nginx"]]), {"services": [name]})
	}
	f.failed(f.decided_in(
		run([["systemctl", "restart", "cron"]]),
		ann({"services": ["nginx"]}),
	)) == {"scope"}
}

# A text may hold a command that is listed beside one that names nothing.
test_each_command_above_green_names_something_listed if {
	all := ann({"services": ["nginx"], "guests": ["105"]})
	raised := object.union(all, {"commands": {"read": {"tier": "yellow"}}})
	restart := ["systemctl", "restart", "nginx"]
	two := [restart, ["pct", "start", "105"]]
	f.decided_in(run(array.concat(two, [["uptime"]])), all).allow
	f.decided_in(run(two), raised).allow
	d := f.decided_in(run(array.concat(two, [["uptime"]])), raised)
	f.failed(d) == {"scope"}
	startswith(d.deny[0].msg, "above green, role operator acts only on what is named, and this")
}

test_a_call_that_names_nothing_listed_is_refused if {
	wake := {"tool": {"name": "wake", "target_kinds": ["nodes"]}, "targets": {"vmids": []}}
	allowed(wake, {})
	f.failed(f.decided_in(wake, ann({"guests": ["105"]}))) == {"scope"}
	look := object.union(wake, {"tool": {"name": "look"}})
	allowed(look, {"guests": ["105"]})
}

test_an_operation_is_held_to_what_its_call_named if {
	done(f.run(["pct", "stop", "105"]), {"guests": ["105"]})
	status := {
		"tool": {"name": "look"}, "parent": {"tool": "look", "tier": "green"},
		"command": f.cmd([["pct", "status", "106"]]),
	}
	done(status, {"guests": ["105", "106"]})
	every listed in [["105"], ["106"]] {
		f.failed(f.operated_in(status, ann({"guests": listed}))) == {"scope"}
	}
}

# The node knows the unit by a name that the role does not list.
test_the_names_of_a_unit_on_its_node_count if {
	q := object.union(f.run(["systemctl", "restart", "nginx"]), {
		"target": {"services": ["nginx.service", "web.service"]},
		"parent": {"targets": {"vmids": [], "services": ["nginx.service"]}},
	})
	done(q, {"services": ["nginx", "web"]})
	f.failed(f.operated_in(q, ann({"services": ["nginx"]}))) == {"scope"}
}

read(path, real) := {
	"op": "sftp_read", "tool": {"name": "look", "imports": ["sftp_read"], "target_kinds": []},
	"parent": {"tool": "look", "tier": "green"},
	"file": {
		"action": "read", "path": path, "real_path": real, "local": null, "bytes": 1,
		"sha256": null, "mode": "", "type": "file", "exists": true, "overwrite": false,
		"parents": false,
		"current_mode": 0,
	},
}

test_paths_are_folders_and_files_by_name_and_by_what_is_there if {
	log := "/var/log/nginx/a.log"
	done(read(log, log), {"paths": ["/var/log/nginx"]})
	done(read(log, log), {"paths": [log]})
	every listed in [["/var/log/nginx/a"], ["/var/log/ngin"], ["/srv"], []] {
		f.failed(f.operated_in(read(log, log), ann({"paths": listed}))) == {"scope"}
	}
	f.failed(f.operated_in(read(log, "/var/log/x"), ann({"paths": [log]}))) == {"scope"}
	cat := run([["cat", "/var/log/syslog"]])
	allowed(cat, {"paths": ["/var/log"]})
	f.failed(f.decided_in(cat, ann({"paths": ["/var/log/nginx"]}))) == {"scope"}
}

test_hosts_are_those_of_requests if {
	q := f.with_http({})
	done(q, {"hosts": ["api.example.com"]})
	f.failed(f.operated_in(q, ann({"hosts": ["example.com"]}))) == {"scope"}
	f.failed(f.operated_in(f.with_http({"hop": 1}), ann({"hosts": []}))) == {"scope"}
}

two(a, b) := {"principals": {"ann": {"roles": ["a", "b"]}}, "roles": {
	"a": object.union(f.site.roles.operator, a), "b": object.union(f.site.roles.operator, b),
}}

# Neither role has the guest at this hour, and one has each.
test_two_roles_are_not_added_together if {
	always := {"days": ["fri"], "from": "00:00", "to": "24:00"}
	never := {"days": [], "from": "00:00", "to": "24:00"}
	not f.decided_in({}, two({"guests": ["105"], "hours": never}, {"guests": ["106"]})).allow
	d := f.decided_in({}, two({"guests": ["105"], "nodes": ["pve2"]}, {"guests": ["106"]}))
	f.failed(d) == {"role"}
	f.decided_in({}, two({"guests": ["105"], "hours": always}, {"guests": ["106"]})).allow
}

at(weekday, hour, minute) := {"time": {
	"weekday": weekday, "hour_utc": hour, "minute_utc": minute,
}}

open(days, from, to, time) if {
	allowed(time, {"hours": {"days": days, "from": from, "to": to}})
}

test_hours_begin_with_from_and_end_before_to if {
	work := ["mon", "tue", "wed", "thu", "fri"]
	open(work, "09:00", "17:00", at(1, 9, 0))
	open(work, "09:00", "17:00", at(5, 16, 59))
	every time in [at(1, 8, 59), at(5, 17, 0), at(6, 9, 0), at(0, 12, 0)] {
		not open(work, "09:00", "17:00", time)
	}
	open(["sat"], "00:00", "24:00", at(6, 23, 59))
	not open(["sat"], "00:00", "24:00", at(0, 0, 0))
	not open(["sat"], "09:00", "09:00", at(6, 9, 0))
	not open([], "00:00", "24:00", at(6, 9, 0))
}

test_hours_over_midnight_are_of_the_day_on_which_they_begin if {
	every time in [at(6, 22, 0), at(6, 23, 59), at(0, 0, 0), at(0, 5, 59)] {
		open(["sat"], "22:00", "06:00", time)
	}
	every time in [at(6, 21, 59), at(6, 5, 0), at(0, 6, 0), at(0, 22, 0)] {
		not open(["sat"], "22:00", "06:00", time)
	}
}

test_hours_that_are_none_never_are if {
	every hours in [
		null, false, [], {}, {"days": ["fri"]}, {"days": ["fri"], "from": "00:00"},
		{"days": null, "from": "00:00", "to": "24:00"}, {"days": ["fri"], "from": 0, "to": 24},
		{"days": ["fri"], "from": "0:00", "to": "24:00"},
	] {
		not allowed(at(5, 12, 0), {"hours": hours})
	}
}

some_hours := {"days": ["mon", "fri"], "from": "09:00", "to": "11:30"}

said(time) := d.deny[0].msg if {
	d := f.decided_in(time, ann({"hours": some_hours}))
	f.failed(d) == {"hours"}
}

test_a_refusal_says_when if {
	startswith(said(at(5, 11, 30)), "outside the hours of role operator; next: Monday 09:00 UTC")
	startswith(said(at(2, 0, 0)), "outside the hours of role operator; next: Friday 09:00 UTC")
	never := f.decided_in(at(2, 0, 0), ann({"hours": object.union(some_hours, {"days": []})}))
	startswith(never.deny[0].msg, "role operator has no hours")
}

test_a_list_does_not_ask_for_the_time if {
	d := f.seen({}) with data.site as object.union(
		f.site,
		ann({"hours": {"days": [], "from": "09:00", "to": "10:00"}}),
	)
	d.allow
}

test_keys_are_in_the_form_that_is_compared if {
	scope.narrowed({"services": ["ssh", "a.timer"]}) == {"services": {
		"ssh.service", "a.timer",
	}}
	scope.spans({"days": ["sat"], "from": "23:30", "to": "00:15"}) == [[10050, 10095]]
}
