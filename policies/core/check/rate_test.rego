package caponier.core.check.rate_test

import data.caponier.core.fixture as f

test_too_many_calls_are_refused if f.failed(f.decided({"facts": {"calls_60s": 11}})) == {"rate"}

test_too_many_calls_on_a_target_are_refused if {
	f.failed(f.decided({"facts": {"target_calls_60s": 6}})) == {"rate"}
}

test_too_many_calls_of_a_tool_are_refused if {
	f.failed(f.decided_in(
		{
			"facts": {"tool_calls_60s": 3},
		},
		{"limits": {"tool_calls_per_minute": 2}},
	)) == {"rate"}
	f.decided_in({"facts": {"tool_calls_60s": 2}}, {"limits": {"tool_calls_per_minute": 2}}).allow
}

# What is not exceeded does not make anybody wait.
test_refusal_says_when_there_is_room_under_every_limit if {
	d := f.decided({
		"facts": {
			"calls_60s": 11, "target_calls_60s": 6, "calls_retry_s": 7, "tool_retry_s": 60,
			"target_retry_s": 42,
		},
	})
	contains(d.deny[0].msg, "the same call in 42 seconds")
	e := f.decided({"facts": {
		"calls_60s": 11, "calls_retry_s": 7, "tool_retry_s": 7, "target_retry_s": 42,
	}})
	contains(e.deny[0].msg, "the same call in 7 seconds")
}

test_calls_at_the_limit_pass if f.decided({"facts": {"calls_60s": 10, "target_calls_60s": 5}}).allow

test_counts_of_another_type_are_refused if {
	every v in [null, "9", false, []] {
		f.failed(f.decided({"facts": {"calls_60s": v}})) == {"rate"}
	}
	every v in [null, "9", false, []] {
		f.failed(f.decided({"facts": {"tool_calls_60s": v}})) == {"rate"}
	}
}

test_no_limit_is_no_permission if {
	"rate" in f.failed(f.decided_in({}, {"limits": {"calls_per_minute": null}}))
}
