package caponier.core.obligations_test

import data.caponier.core.fixture as f

test_above_green_is_logged_loudly if {
	f.decided({}).obligations.log == "warn"
	f.decided({"tool": {"name": "look"}}).obligations.log == "info"
	f.operated(f.run(["pct", "stop", "105"])).obligations.log == "warn"
	f.operated(f.run(["pct", "list"])).obligations.log == "info"
}

test_limits_of_the_site_are_passed_on if {
	d := f.decided_in({}, {"limits": {"timeout_ms": 5, "output_bytes": 7}})
	d.obligations.timeout_ms == 5
	d.obligations.max_bytes == 7
	d.obligations.redact == ["password"]
	d.obligations.channels == ["cli", "web"]
	d.obligations.approvers == ["*"]
	f.decided_in({}, {"approval": {"channels": ["client"]}}).obligations.channels == ["client"]
}
