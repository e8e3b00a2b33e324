package caponier.core.check.confirmation_test

import data.caponier.core.fixture as f

test_red_call_waits if {
	d := f.decided({"tool": {"name": "kill"}})
	f.failed(d) == {"confirmation"}
	d.confirm == true
}

test_approved_call_passes_on_a_channel_of_the_site if {
	every channel in ["cli", "web"] {
		f.decided({
			"tool": {"name": "kill"},
			"confirmation": {"state": "approved", "by": "bob", "channel": channel},
		}).allow
	}
	f.decided_in(
		{
			"tool": {"name": "kill"},
			"confirmation": {"state": "approved", "by": "bob", "channel": "client"},
		},
		{"approval": {"channels": ["client"]}},
	).allow
}

test_approval_on_another_channel_is_none if {
	every channel in ["client", "mail", "", null] {
		f.failed(f.decided({
			"tool": {"name": "kill"},
			"confirmation": {"state": "approved", "by": "bob", "channel": channel},
		})) == {"confirmation"}
	}
	every channels in [["cli"], [], "web"] {
		f.failed(f.decided_in(
			{
				"tool": {"name": "kill"},
				"confirmation": {"state": "approved", "by": "bob", "channel": "web"},
			},
			{"approval": {"channels": channels}},
		)) == {"confirmation"}
	}
}

test_approval_by_nobody_is_none if {
	f.failed(f.decided({
		"tool": {"name": "kill"},
		"confirmation": {"state": "approved", "by": "", "channel": "cli"},
	})) == {"confirmation"}
}

test_approval_counts_by_whom_the_site_names if {
	red := {
		"tool": {"name": "kill"},
		"confirmation": {"state": "approved", "by": "bob", "channel": "web"},
	}
	every approvers in [["bob"], ["ann", "bob"], ["*"]] {
		f.decided_in(red, {"approval": {"approvers": approvers}}).allow
	}
	every approvers in [["ann"], [], ["b"]] {
		f.failed(f.decided_in(red, {"approval": {"approvers": approvers}})) == {"confirmation"}
	}
	f.decided_in(
		{
			"tool": {"name": "kill"},
			"confirmation": {"state": "approved", "by": "client of ann", "channel": "client"},
		},
		{"approval": {"channels": ["client"], "approvers": ["ann"]}},
	).allow
}

test_stale_confirmations_are_none if {
	every state in ["expired", "mismatch", "none", "", null] {
		f.failed(f.decided({
			"tool": {"name": "kill"},
			"confirmation": {"state": state, "by": "bob", "channel": "cli"},
		})) == {"confirmation"}
	}
}

test_argument_counts_only_where_the_site_says_so if {
	f.failed(f.decided({
		"tool": {"name": "kill"}, "confirmation": {"state": "argument"},
	})) == {"confirmation"}
	f.decided_in(
		{"tool": {"name": "kill"}, "confirmation": {"state": "argument"}},
		{"approval": {"argument": true}},
	).allow
}

test_protected_guest_stays_refused_where_it_is_relaxed_too if {
	d := f.decided_in(
		{"tool": {"name": "kill"}, "targets": {"vmids": ["103"]}},
		{"relaxed": {"vmids": ["103"], "tools": ["kill"]}},
	)
	f.failed(d) == {"protected"}
}

test_confirmation_is_not_asked_for_what_is_refused_anyway if {
	d := f.decided({"tool": {"name": "kill"}, "targets": {"vmids": ["103"]}})
	f.failed(d) == {"protected"}
	d.confirm == false
}

test_no_channels_and_no_approvers_approve_nothing if {
	red := {
		"tool": {"name": "kill"},
		"confirmation": {"state": "approved", "by": "bob", "channel": "web"},
	}
	every key in ["channels", "approvers"] {
		d := f.decided_in(red, {"approval": {key: null}})
		d.allow == false
		d.failed == ["schema"]
		contains(d.deny[0].msg, sprintf("the site's data lacks approval/%s", [key]))
	}
}

test_a_request_that_expired_is_told_as_such if {
	d := f.decided({"tool": {"name": "kill"}, "confirmation": {"state": "expired"}})
	f.failed(d) == {"confirmation"}
	contains(d.deny[0].msg, "the request to approve kill expired before a person answered")
}
