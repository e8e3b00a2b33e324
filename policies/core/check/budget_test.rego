package caponier.core.check.budget_test

import data.caponier.core.fixture as f

test_spent_budget_is_refused if {
	f.failed(f.decided({"facts": {"usd_micros_today": 101}})) == {"budget"}
}

test_budget_at_the_limit_passes if f.decided({"facts": {"usd_micros_today": 100}}).allow

test_money_of_another_type_is_refused if {
	f.failed(f.decided({"facts": {"usd_micros_today": null}})) == {"budget"}
}

test_no_limit_is_no_permission if {
	f.failed(f.decided_in({}, {"limits": {"usd_micros_per_day": null}})) == {"schema", "budget"}
}
