package caponier.core.check.readonly_test

import data.caponier.core.fixture as f

test_call_above_green_is_refused if {
	f.failed(f.decided({"mode": {"read_only": true}})) == {"readonly"}
}

test_green_call_passes if f.decided({"mode": {"read_only": true}, "tool": {"name": "look"}}).allow

test_operation_above_green_is_refused if {
	q := object.union({"mode": {"read_only": true}}, f.run(["pct", "stop", "105"]))
	f.failed(f.operated(q)) == {"readonly"}
}

test_green_operation_passes if {
	f.operated(object.union({"mode": {"read_only": true}}, f.run(["pct", "status", "105"]))).allow
}

test_tool_above_green_is_not_shown if {
	f.failed(f.seen({"mode": {"read_only": true}, "tool": {"name": "kill"}})) == {"readonly"}
}

test_green_tool_is_shown if f.seen({"mode": {"read_only": true}, "tool": {"name": "look"}}).allow

test_missing_state_shows_nothing if f.failed(f.seen({"mode": {"read_only": null}})) == {"readonly"}

test_missing_state_is_refused if f.failed(f.decided({"mode": {"read_only": null}})) == {"readonly"}
