package caponier.core.check.touched_test

import data.caponier.core.fixture as f

guest := {
	"about": "guest:105", "name": "db", "kind": "lxc", "node": "pve1", "status": "running",
	"config": "aa", "also": [],
}

stop := object.union(f.run(["pct", "stop", "105"]), {"parent": {
	"tier": "red",
	"confirmation": {"state": "approved", "by": "bob", "channel": "cli"},
}})

facts := {
	"digest": "sha256:aa", "complete": true, "next": true, "left": true, "want": "pct stop 105",
	"rests": ["guest:105"], "changed": "",
}

lacks(d, keys) if {
	not d.allow
	d.failed == ["touched"]
	d.lacks == keys
}

test_dry_run_asks_the_node_for_the_guest if {
	lacks(f.operated(object.union(stop, {"planning": true})), ["guest:105"])
}

test_dry_run_passes_with_the_guest if {
	f.operated(object.union(stop, {"planning": true, "touches": [guest]})).allow
}

test_call_without_a_plan_asks_for_nothing if {
	d := f.operated(object.union(stop, {"parent": {"confirmation": {
		"state": "none", "by": "", "channel": "",
	}}}))
	d.allow
	d.lacks == []
}

test_basis_of_a_plan_is_looked_up_again if {
	lacks(f.operated(object.union(stop, {"plan": facts})), ["guest:105"])
	f.operated(object.union(stop, {"plan": facts, "touches": [guest]})).allow
}

test_node_is_not_asked_for_another_step if {
	d := f.operated(object.union(stop, {"plan": object.union(facts, {"next": false})}))
	not d.allow
	d.lacks == []
}

test_node_is_not_asked_about_a_refused_operation if {
	d := f.operated(object.union(stop, {"planning": true, "principal": {"id": "eve"}}))
	not d.allow
	d.lacks == []
}

test_reads_have_no_basis if {
	f.operated(object.union(f.run(["pct", "status", "105"]), {"planning": true})).allow
}

test_names_of_units_and_what_they_touch_are_asked_for_at_once if {
	d := f.operated(object.union(f.run(["systemctl", "restart", "--", "nginx"]), {
		"parent": {"tier": "red", "targets": {"services": ["nginx"]}},
		"planning": true, "target": {"services": null},
	}))
	{id | some id in d.failed} == {"touched", "unit"}
	d.units == ["nginx"]
	d.lacks == ["unit:nginx"]
}

own(argv, entry) := f.operated_in(object.union(f.run(argv), {"planning": true}), {"binaries": {
	"mytool": {"purge": entry},
}})

test_storage_of_a_command_is_asked_for if {
	lacks(
		own(["mytool", "purge", "local"], {
			"group": "storage", "tier": "yellow", "operands": ["storage"], "options": {},
		}),
		["storage:local"],
	)
}

test_power_command_touches_the_guests_of_its_node if {
	lacks(
		own(
			[
				"mytool", "purge",
			],
			{"group": "power", "tier": "yellow", "operands": [], "options": {}},
		),
		["node:pve1"],
	)
}

test_lookup_itself_needs_nothing if {
	f.operated(object.union(stop, {"planning": true, "phase": "lookup"})).allow
}
