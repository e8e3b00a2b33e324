package caponier.core.check.tier_test

import data.caponier.core.fixture as f

test_black_tool_never_runs if "tier" in f.failed(f.decided({"tool": {"name": "never"}, "confirmation": {"state": "approved", "by": "bob"}}))

test_black_tool_is_not_shown if f.failed(f.seen({"tool": {"name": "never"}})) == {"tier"}

test_red_tool_is_shown if f.seen({"tool": {"name": "kill"}}).tier == "red"

test_operation_above_its_call_is_refused if {
	f.failed(f.operated(object.union({"parent": {"tier": "green"}}, f.run(["pct", "stop", "105"])))) == {"tier"}
}

test_operation_as_high_as_its_call_passes if f.operated(f.run(["pct", "stop", "105"])).tier == "yellow"

test_parent_without_a_tier_is_refused if "tier" in f.failed(f.operated(object.union({"parent": {"tier": ""}}, f.run(["pct", "list"]))))

test_black_command_never_runs if {
	"tier" in f.failed(f.operated(object.union({"parent": {"tier": "black"}}, f.run(["reboot"]))))
}

test_the_site_raises_a_command if f.operated(object.union({"parent": {"tier": "red"}}, f.run(["qm", "stop", "105"]))).tier == "red"

test_command_of_a_relaxed_guest_keeps_the_grammars_tier if {
	f.operated(object.union({"parent": {"targets": {"vmids": ["104"]}}}, f.run(["qm", "stop", "104"]))).tier == "yellow"
}

test_call_is_as_high_as_its_command if {
	f.decided({"tool": {"name": "run"}, "commands": [f.cmd([["uptime"], ["qm", "stop", "105"]])]}).tier == "red"
}

test_relaxed_tool_is_yellow_for_relaxed_guests_alone if {
	f.decided({"tool": {"name": "kill"}, "targets": {"vmids": ["104"]}}).tier == "yellow"
	f.decided({"tool": {"name": "kill"}, "targets": {"vmids": ["104", "105"]}}).tier == "red"
	f.decided({"tool": {"name": "kill"}, "targets": {"vmids": []}}).tier == "red"
}

test_text_for_a_guest_is_yellow_at_least if f.decided({"tool": {"name": "look"}, "commands": [f.guest_cmd("ls")]}).tier == "yellow"

test_an_operation_of_no_kind_is_black if f.operated({}).tier == "black"

test_writes_over_http_are_yellow if {
	f.operated(f.with_http({"method": "POST"})).tier == "yellow"
	f.operated(f.with_http({})).tier == "green"
}
