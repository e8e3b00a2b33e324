package caponier.core.check.record_test

import data.caponier.core.fixture as f

told_of(record) := told_in(record, {})

told_in(record, sites) := f.operated_in(
	{
		"op": {"undo": "undo_steps", "snapshots": "snapshots"}[record.action], "target": null,
		"tool": {"name": "look", "imports": ["undo_steps", "snapshots"], "target_kinds": []},
		"parent": {"tool": "look"}, "record": object.union(
			{
				"call": "C", "all": false, "undo": null,
			},
			record,
		),
	},
	sites,
)

mine := {"action": "undo", "undo": {"owner": "ann", "bars": ""}}

told(d) := [r.msg | some r in d.deny; r.id == "record"][0]

test_own_call_may_be_undone if {
	told_of(mine).allow
	told_of(mine).tier == "green"
}

test_call_of_another_principal_is_refused if {
	d := told_of({"action": "undo", "undo": {"owner": "bob", "bars": ""}})
	not d.allow
	contains(told(d), "has no record of a call C of yours")
	told(d) == told(told_of({"action": "undo", "undo": {"owner": "", "bars": ""}}))
}

test_call_without_a_record_may_not if {
	contains(told(told_of({"action": "undo", "undo": {"owner": "", "bars": ""}})), "no record of")
}

test_later_change_bars_the_undo if {
	bar := "guest 105 was stopped after the call, and is running"
	contains(told(told_of({"action": "undo", "undo": {"owner": "ann", "bars": bar}})), bar)
}

test_missing_lookup_bars_the_undo if not told_of({"action": "undo", "undo": null}).allow

test_lookup_may_be_made if {
	f.operated({
		"op": "undo_steps", "target": null, "phase": "lookup",
		"tool": {"name": "look", "imports": ["undo_steps"], "target_kinds": []},
		"parent": {"tool": "look"},
		"record": {"action": "undo", "call": "C", "all": false, "undo": null},
	}).allow
}

seers(names) := {"snapshot": {
	"tier": "red", "optional": false, "keep": 1, "keep_days": 1, "seers": names,
}}

test_own_snapshots_are_shown if told_of({"action": "snapshots"}).allow

test_snapshots_of_everybody_are_shown_to_the_roles_that_the_site_names if {
	all := {"action": "snapshots", "all": true}
	told_in(all, seers(["operator"])).allow
	contains(told(told_in(all, seers(["reader"]))), "your own calls")
	not told_in(all, seers([])).allow
	not told_of(all).allow
}
