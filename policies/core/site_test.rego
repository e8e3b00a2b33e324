package caponier.core.site_test

import data.caponier.core.fixture as f

# What a site may add: denials, and nothing else.
deny(kind, d) := {kind: {"deny": {d}}}

test_rule_of_the_site_refuses_a_call if {
	d := data.caponier.core.call.decision with input as f.a_call
		with data.site as f.site
		with data.caponier.site as deny("call", {"id": "site.night", "msg": "not at night"})
	f.failed(d) == {"site"}
	{"id": "site.night", "msg": "not at night"} in d.deny
}

test_rule_of_the_site_refuses_an_operation if {
	d := data.caponier.core.operation.decision
		with input as object.union(f.an_operation, f.run(["pct", "list"]))
		with data.site as f.site
		with data.caponier.site as deny("operation", {"id": "site.x", "msg": "no"})
	f.failed(d) == {"site"}
	d.allow == false
}

test_site_without_rules_passes if {
	d := data.caponier.core.call.decision
		with input as f.a_call
		with data.site as f.site
		with data.caponier.site as {}
	d.allow
}
