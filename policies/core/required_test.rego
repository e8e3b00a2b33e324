package caponier.core.required_test

import data.caponier.core.decide
import data.caponier.core.derived
import data.caponier.core.fixture as f

inputs := {
	"call": f.a_call, "operation": object.union(f.an_operation, f.run(["pct", "status", "101"])),
	"plan": f.a_plan, "visible": f.a_visible,
}

required := derived.required

# The tables as the host keeps them.
host := {
	"required": required, "whole": true, "granting": {}, "services": {},
	"obligations": {"info": {"channels": [], "approvers": []}, "warn": {}},
	"guests": {"raises": false, "max_age_s": 30, "lists": false, "configs": false},
}

# The checks as a table in which all hold but one, which does not or is not there.
table(without) := object.union(
	{id: {"ok": true, "denials": set()} | some ids in required; some id in ids; id != without},
	{"site": {"ok": without != "site", "denials": set()}},
)

decided(kind, checks) := d if {
	d := decide.answer(kind) with input as inputs[kind]
		with data.site as f.site
		with data.derived as host
		with data.caponier.core.check as checks
}

test_a_question_whose_checks_all_hold_is_allowed if {
	every kind, _ in inputs { decided(kind, table("")).allow == true }
}

# Also the checks that others imply: if one is no longer required, this test fails.
test_each_required_check_alone_refuses if {
	every kind, ids in required {
		every id in ids {
			d := decided(kind, table(id))
			d.allow == false
			d.failed == [id]
		}
	}
}

test_a_check_that_is_false_refuses if {
	every kind, ids in required {
		every id in ids {
			checks := object.union(table(id), {id: {"ok": false, "denials": set()}})
			decided(kind, checks).allow == false
		}
	}
}

test_a_list_of_checks_that_is_not_whole_refuses if {
	every kind, _ in inputs {
		every ids in [set(), {"rate"}, null] {
			d := decide.answer(kind) with input as inputs[kind]
				with data.site as f.site
				with data.derived as object.union(host, {"required": {kind: ids}})
			d.allow == false
			d.failed == ["schema"]
		}
	}
}

refused(kind, other) if {
	d := decide.answer(kind) with input as inputs[other] with data.site as f.site
	d.failed == ["schema"]
}

test_a_question_of_another_kind_refuses if {
	every pair in [[a, b] | some a, _ in inputs; some b, _ in inputs; a != b] {
		refused(pair[0], pair[1])
	}
}

# Each check says itself which kinds of questions require it.
test_no_check_was_lost if {
	count(required.call) >= 19
	count(required.operation) >= 19
	count(required.plan) >= 3
	count(required.visible) >= 8
}

test_the_usual_question_is_allowed if {
	f.decided({}).allow
	f.operated(f.run(["pct", "status", "101"])).allow
	f.seen({}).allow
}
