package caponier.core.check.ceiling_test

import data.caponier.core.fixture as f

test_call_above_the_ceiling_is_refused if {
	d := f.decided({"principal": {"id": "two"}, "tool": {"name": "stop"}})
	f.failed(d) == {"ceiling"}
	contains(d.deny[0].msg, "this is yellow, and your roles go up to green")
}

test_operation_above_the_ceiling_is_refused if {
	q := object.union({"principal": {"id": "two"}}, f.run(["pct", "stop", "105"]))
	f.failed(f.operated(q)) == {"ceiling", "command"}
}

test_tool_above_the_ceiling_is_not_shown if {
	f.failed(f.seen({"principal": {"id": "two"}, "tool": {"name": "stop"}})) == {"ceiling"}
}

test_call_at_the_ceiling_passes if {
	f.decided({"principal": {"id": "two"}, "tool": {"name": "look"}}).allow
}
