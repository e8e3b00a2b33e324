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

test_approval_on_another_channel_does_not_count if {
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

test_approval_without_an_approver_does_not_count if {
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

test_stale_confirmations_do_not_count if {
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

two := {"approval": {"needs": {"tool:kill": {"approvers": 2, "ticket": "OPS-[0-9]+", "reason": true}}}}

said(by) := {"by": by, "channel": "web", "ticket": "OPS-7", "note": "it hangs"}

cli(by) := object.union(said(by), {"channel": "cli"})

of(answers) := {
	"tool": {"name": "kill"},
	"confirmation": {"state": "approved", "by": "bob", "channel": "web", "answers": answers},
}

test_two_persons_with_ticket_and_reason_pass if {
	f.decided_in(of([said("ann"), said("bob")]), two).allow
	f.decided_in(of([said("ann"), said("eve"), said("bob")]), two).allow
}

test_what_a_yes_lacks_makes_it_none if {
	every other in [
		said("ann"), said("ANN"), object.union(said("bob"), {"ticket": "OPS-"}),
		object.union(said("bob"), {"ticket": "xOPS-7"}),
		object.union(said("bob"), {"ticket": "OPS-7\n"}), object.union(said("bob"), {"ticket": ""}),
		object.union(said("bob"), {"note": " "}), object.union(said("bob"), {"channel": "mail"}),
		object.union(said("bob"), {"channel": "client"}), object.union(said("bob"), {"by": ""}),
		{"by": "bob", "channel": "web"},
	] {
		d := f.decided_in(of([said("ann"), other]), two)
		f.failed(d) == {"confirmation"}
		contains(d.deny[0].msg, "needs 2 approvals, each with a ticket like OPS-[0-9]+, each with a")
		contains(d.deny[0].msg, "and has 1 that the site accepts")
	}
}

test_a_terminal_is_one_person if {
	f.decided_in(of([cli("ann"), said("bob")]), two).allow
	every answers in [[cli("ann"), cli("bob")], [cli("ann"), said("Ann")]] {
		f.failed(f.decided_in(of(answers), two)) == {"confirmation"}
	}
}

test_needed_approvals_are_not_met_by_less if {
	every answers in [[], null, "x", [said("ann")], {"a": said("ann")}] {
		f.failed(f.decided_in(of(answers), two)) == {"confirmation"}
	}
	f.failed(f.decided_in(
		{
			"tool": {"name": "kill"},
			"confirmation": {"state": "approved", "by": "bob", "channel": "web"},
		},
		two,
	)) == {"confirmation"}
}

test_needed_approvals_leave_no_room_for_the_argument if {
	q := {"tool": {"name": "kill"}, "confirmation": {"state": "argument", "by": "", "channel": ""}}
	f.decided_in(q, {"approval": {"argument": true}}).allow
	d := f.decided_in(q, {"approval": object.union(two.approval, {"argument": true})})
	f.failed(d) == {"confirmation"}
}

test_each_person_is_one_that_the_site_names if {
	named := {"approval": object.union(two.approval, {"approvers": ["ann", "bob"]})}
	f.decided_in(of([said("ann"), said("bob")]), named).allow
	f.failed(f.decided_in(of([said("ann"), said("eve")]), named)) == {"confirmation"}
}

test_star_is_every_tool_without_an_entry if {
	all := {"approval": {"needs": {"*": {"approvers": 1, "ticket": "", "reason": true}}}}
	f.decided_in(of([said("ann")]), all).allow
	f.failed(f.decided_in(of([object.union(said("ann"), {"note": ""})]), all)) == {"confirmation"}
	own := {"approval": {"needs": object.union(all.approval.needs, two.approval.needs)}}
	f.failed(f.decided_in(of([said("ann")]), own)) == {"confirmation"}
	f.decided_in(of([said("ann")]), own).obligations.needs.approvers == 2
}

test_an_entry_without_a_part_lets_nothing_pass if {
	every key in ["approvers", "ticket", "reason"] {
		broken := {"approval": {"needs": {"tool:kill": object.remove(
			two.approval.needs["tool:kill"],
			[key],
		)}}}
		not f.decided_in(of([said("ann"), said("bob")]), broken).allow
	}
}
