package caponier.core.check.rate_test

import data.caponier.core.fixture as f

test_too_many_calls_are_refused if f.failed(f.decided({"facts": {"calls_60s": 11}})) == {"rate"}

test_too_many_calls_on_a_target_are_refused if f.failed(f.decided({"facts": {"target_calls_60s": 6}})) == {"rate"}

test_calls_at_the_limit_pass if f.decided({"facts": {"calls_60s": 10, "target_calls_60s": 5}}).allow

test_counts_of_another_type_are_refused if {
	every v in [null, "9", false, []] { f.failed(f.decided({"facts": {"calls_60s": v}})) == {"rate"} }
}

test_no_limit_is_no_permission if f.failed(f.decided_in({}, {"limits": {"calls_per_minute": null}})) == {"rate"}
