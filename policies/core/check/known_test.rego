package caponier.core.check.known_test

import data.caponier.core.fixture as f

test_tool_without_a_tier_is_refused if "known" in f.failed(f.decided({"tool": {"name": "new"}}))

test_resource_is_not_a_tool if "known" in f.failed(f.decided({"kind": "resource"}))

test_tool_with_a_tier_passes if f.decided({}).allow

test_tool_without_a_tier_is_not_shown if "known" in f.failed(f.seen({"tool": {"name": "new"}}))

test_tool_whose_tier_is_removed_stops_its_running_calls if {
	q := object.union(
		{
			"tool": {"name": "gone"}, "parent": {"tool": "gone"},
		},
		f.run(["pct", "status", "105"]),
	)
	d := f.operated(q)
	f.failed(d) == {"known"}
	startswith(d.deny[0].msg, "tool:gone has no tier, so it is switched off · ")
}
