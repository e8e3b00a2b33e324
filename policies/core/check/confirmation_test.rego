package caponier.core.check.confirmation_test

import data.caponier.core.fixture as f

test_red_call_waits if {
	d := f.decided({"tool": {"name": "kill"}})
	f.failed(d) == {"confirmation"}
	d.confirm == true
}

test_approved_call_passes if f.decided({"tool": {"name": "kill"}, "confirmation": {"state": "approved", "by": "bob"}}).allow

test_approval_by_nobody_is_none if {
	f.failed(f.decided({"tool": {"name": "kill"}, "confirmation": {"state": "approved", "by": ""}})) == {"confirmation"}
}

test_stale_confirmations_are_none if {
	every state in ["expired", "mismatch", "none", "", null] {
		f.failed(f.decided({"tool": {"name": "kill"}, "confirmation": {"state": state, "by": "bob"}})) == {"confirmation"}
	}
}

test_argument_counts_only_where_the_site_says_so if {
	f.failed(f.decided({"tool": {"name": "kill"}, "confirmation": {"state": "argument"}})) == {"confirmation"}
	f.decided_in({"tool": {"name": "kill"}, "confirmation": {"state": "argument"}}, {"approval": {"argument": true}}).allow
}

test_confirmation_is_not_asked_for_what_is_refused_anyway if {
	d := f.decided({"tool": {"name": "kill"}, "targets": {"vmids": ["103"]}})
	f.failed(d) == {"confirmation", "protected"}
	d.confirm == false
}
