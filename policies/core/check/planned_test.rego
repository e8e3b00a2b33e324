package caponier.core.check.planned_test

import data.caponier.core.fixture as f

stop := object.union(f.run(["pct", "stop", "105"]), {"parent": {
	"tier": "red",
	"confirmation": {"state": "approved", "by": "bob", "channel": "cli"},
}})

facts := {
	"digest": "sha256:aa", "complete": true, "next": true, "left": true, "want": "pct stop 105",
	"rests": [], "changed": "",
}

held(change) := object.union(stop, {"plan": object.union(facts, change)})

fails(change) if "planned" in f.failed(f.operated(change))

test_next_step_passes if f.operated(held({})).allow

test_another_step_is_refused if fails(held({"next": false, "want": "pct start 105"}))

test_change_since_the_plan_is_refused if {
	d := f.operated(held({"changed": "guest 105 (db) was stopped when the call was planned"}))
	"planned" in f.failed(d)
	some r in d.deny
	r.id == "planned"
	contains(r.msg, "guest 105 (db) was stopped when the call was planned: plan the call again")
}

test_difference_is_said if {
	d := f.operated(held({"next": false, "want": "pct start 105"}))
	some r in d.deny
	r.id == "planned"
	contains(r.msg, "pct start 105")
}

test_step_after_the_last_one_is_refused if fails(held({"next": false, "left": false}))

test_approved_call_without_a_plan_is_refused if fails(object.union(stop, {"plan": null}))

test_unapproved_call_needs_no_plan if {
	f.operated(object.union(stop, {"parent": {"confirmation": {
		"state": "none", "by": "", "channel": "",
	}}})).allow
}

test_reads_stand_in_no_plan if {
	f.operated(object.union(
		f.run(["pct", "status", "105"]),
		{"plan": object.union(facts, {"next": false})},
	)).allow
}

test_incomplete_plan_binds_its_steps if {
	fails(held({"next": false, "complete": false}))
}

test_step_after_an_incomplete_plan_is_refused if {
	fails(held({"next": false, "left": false, "complete": false}))
}

test_step_after_an_incomplete_plan_passes_if_the_site_allows_it if {
	f.operated_in(
		held({"next": false, "left": false, "complete": false}),
		{"approval": {"incomplete_plans": true}},
	).allow
}

test_step_after_a_complete_plan_is_refused_even_then if {
	d := f.operated_in(
		held({
			"next": false, "left": false,
		}),
		{"approval": {"incomplete_plans": true}},
	)
	"planned" in f.failed(d)
}

test_red_call_may_be_planned_without_approval if {
	d := f.decided({"tool": {"name": "purge"}, "planning": true})
	not "confirmation" in f.failed(d)
}

test_whole_plan_may_be_asked_about if f.planned({}).allow

test_plan_with_a_refused_step_is_refused if {
	step := object.union(f.a_plan.steps[0], {"allowed": false, "failed": ["protected"]})
	d := f.planned({"steps": array.concat(f.a_plan.steps, [step])})
	"planned" in f.failed(d)
	some r in d.deny
	contains(r.msg, "step 2 of the plan, ssh_exec, is refused: protected")
}

test_plan_that_ends_early_is_refused if {
	d := f.planned({"complete": false, "ends": "after step 1: the tool failed"})
	"planned" in f.failed(d)
	some r in d.deny
	contains(r.msg, "after step 1: the tool failed")
}

test_plan_that_ends_early_passes_where_the_site_says_so if {
	f.planned_with(
		{"complete": false, "ends": "after step 1"},
		{"approval": {"incomplete_plans": true}}, f.no_rules,
	).allow
}

test_site_decides_on_the_plan_as_a_whole if {
	rules := object.union(f.no_rules, {"plan": {"deny": {{
		"id": "site.guests", "msg": "too many",
	}}}})
	d := f.planned_with({}, {}, rules)
	not d.allow
	"site" in f.failed(d)
}
