package caponier.core.check.freeze_test

import data.caponier.core.fixture as f

test_frozen_call_is_refused if f.failed(f.decided({"mode": {"frozen": true}})) == {"freeze"}

test_frozen_operation_is_refused if f.failed(f.operated(object.union({"mode": {"frozen": true}}, f.run(["pct", "list"])))) == {"freeze"}

test_refusal_says_why_it_is_frozen if {
	d := f.decided({"mode": {"frozen": true, "reason": "looking into agent-a"}})
	startswith(d.deny[0].msg, "everything is frozen: looking into agent-a")
}

test_missing_state_is_refused if f.failed(f.decided({"mode": {"frozen": null}})) == {"freeze"}

test_thawed_call_passes if f.decided({}).allow
