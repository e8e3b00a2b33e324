package caponier.core.check.arguments_test

import data.caponier.core.fixture as f

test_large_arguments_are_refused if f.failed(f.decided({"args": {"bytes": 1001}})) == {"arguments"}

test_arguments_at_the_limit_pass if f.decided({"args": {"bytes": 1000}}).allow

test_size_of_another_type_is_refused if {
	every v in [null, "9", false, [], -1] {
		f.failed(f.decided({"args": {"bytes": v}})) == {"arguments"}
	}
}

test_no_limit_is_no_permission if {
	f.failed(f.decided_in({}, {"limits": {"argument_bytes": null}})) == {"schema", "arguments"}
}
