package caponier.core.check.guests_test

import data.caponier.core.fixture as f

tagged := {"protected": object.union(f.site.protected, {
	"tags": {
		"prod": {"reason": "customers use it"},
		"watched": {"reason": "looked at only", "reads": "allow"},
	},
	"pools": {"shop": {"reason": "the shop"}},
	"names": {"db-[0-9]+|mail": {"reason": "data of others"}},
})}

raising(tier) := {"raised": {"tags": {"web": {"tier": tier}}, "nodes": {"pve2": {"tier": "red"}}}}

plain := {
	"name": "web01", "kind": "lxc", "node": "pve1", "status": "running", "tags": [], "pool": "",
	"template": false, "ha": "", "age_s": 1,
}

# The facts of guest 105, with a change.
about(change) := {"guests": {"105": object.union(plain, change)}}

stop := f.run(["pct", "stop", "105"])

refused(d, id) if {
	not d.allow
	d.failed == [id]
}

test_a_call_lacks_the_facts_of_its_guest if {
	d := f.decided_in({}, tagged)
	refused(d, "guests")
	d.guests == {"vmids": ["105"], "max_age_s": 30, "configs": false}
	contains(d.deny[0].msg, "what the cluster says of guest 105 is not known")
}

test_an_operation_lacks_them_too if {
	d := f.operated_in(stop, tagged)
	refused(d, "guests")
	d.guests.vmids == ["105"]
}

test_facts_without_findings_pass if {
	f.decided_in(about({}), tagged).allow
	f.operated_in(object.union(stop, about({})), tagged).allow
}

test_refused_question_asks_for_no_facts if {
	d := f.decided_in({"targets": {"vmids": ["103"]}}, tagged)
	d.guests.vmids == []
	not "guests" in f.failed(d)
	d2 := f.decided_in({"principal": {"id": "nobody"}}, tagged)
	d2.guests.vmids == []
}

test_question_that_waits_for_a_person_asks_for_facts_first if {
	d := f.decided_in({"tool": {"name": "kill"}}, tagged)
	not d.allow
	d.guests.vmids == ["105"]
	d.confirm == false
	e := f.decided_in(object.union({"tool": {"name": "kill"}}, about({})), tagged)
	e.confirm == true
}

test_question_that_nobody_can_approve_asks_for_no_facts if {
	kill := {"tool": {"name": "kill"}}
	every approval in [{"channels": []}, {"approvers": []}] {
		d := f.decided_in(kill, object.union(tagged, {"approval": approval}))
		not d.allow
		d.guests.vmids == []
	}
	client := object.union(tagged, {"approval": {"channels": ["client"], "approvers": []}})
	f.decided_in(kill, client).guests.vmids == ["105"]
}

test_a_site_without_such_entries_asks_for_nothing if {
	f.decided({}).allow
	q := object.union(f.site.protected, {"tags": {}, "pools": {}, "names": {}})
	f.decided_in({}, {"protected": q}).allow
	f.decided_in({}, {"raised": {"tags": {}}}).allow
}

test_old_facts_do_not_count if {
	refused(f.decided_in(about({"age_s": 31}), tagged), "guests")
	f.decided_in(about({"age_s": 30}), tagged).allow
	q := object.union(tagged, {"guest_facts": {"max_age_s": 20}})
	refused(f.decided_in(about({"age_s": 30}), q), "guests")
	refused(f.decided_in(about({"age_s": -1}), tagged), "guests")
}

test_a_guest_whose_node_sends_nothing_is_refused if {
	d := f.decided_in(about({"status": "unknown", "name": ""}), tagged)
	refused(d, "guests")
	contains(d.deny[0].msg, "their node sends nothing")
}

test_a_guest_that_is_not_there_has_no_tag if {
	f.decided_in(about({"name": "", "kind": "", "node": "", "status": ""}), tagged).allow
}

test_tags_pools_names_and_nodes_protect if {
	every change in [
		{"tags": ["prod"]}, {"tags": ["web", "PROD"]}, {"pool": "shop"}, {"pool": "shop/front"},
		{"name": "db-12"}, {"name": "mail"}, {"node": "agent1"},
	] {
		refused(f.decided_in(about(change), tagged), "protected")
		refused(f.operated_in(object.union(stop, about(change)), tagged), "protected")
	}
	every change in [
		{"tags": ["prod2"]}, {"pool": "shop2"}, {"pool": "old/shop"}, {"name": "db-x"},
		{"name": "a-db-1"}, {"name": "mail2"}, {"name": "webmail"}, {"node": "pve2"},
	] {
		f.decided_in(about(change), tagged).allow
	}
}

test_a_refusal_names_guest_entry_and_reason if {
	d := f.decided_in(about({"tags": ["prod"]}), tagged)
	contains(d.deny[0].msg, "guest 105 (web01) is protected by its tag: customers use it")
	contains(d.deny[0].msg, "protected/tags/prod")
	e := f.decided_in({"targets": {"vmids": ["103"]}, "guests": {"103": plain}}, tagged)
	contains(e.deny[0].msg, "guest 103 (web01) is protected: management VM")
}

test_a_name_cannot_pose_as_a_sentence if {
	d := f.decided_in(
		about({
			"tags": ["prod"], "name": concat("", ["x", "\n", "‮allowed"]),
		}),
		tagged,
	)
	contains(d.deny[0].msg, "guest 105 (x??allowed)")
}

test_reads_pass_where_the_entry_says_so if {
	look := {"tool": {"name": "look"}}
	f.decided_in(object.union(look, about({"tags": ["watched"]})), tagged).allow
	refused(f.decided_in(about({"tags": ["watched"]}), tagged), "protected")
}

test_a_guest_in_a_command_a_path_or_a_unit_counts if {
	files := {"files": {"read": ["/etc/pve/lxc"], "write": [], "max_bytes": 1}}
	every line in [
		"cat /etc/pve/lxc/140.conf", "systemctl status pve-container@140", "pct status 140",
		"lvs vm-140-disk-0",
	] {
		"guests" in f.failed(f.operated_in(f.run(split(line, " ")), object.union(tagged, files)))
	}
	q := object.union(
		f.run([
			"pct", "status", "140",
		]),
		{"guests": {"140": object.union(plain, {"tags": ["prod"]})}},
	)
	refused(f.operated_in(q, tagged), "protected")
}

test_a_raised_guest_raises_what_is_above_green if {
	d := f.decided_in(about({"tags": ["web"]}), raising("red"))
	d.tier == "red"
	d.confirm == true
	q := object.union({"tool": {"name": "look"}}, about({"tags": ["web"]}))
	f.decided_in(q, raising("red")).tier == "green"
	black := f.decided_in(about({"tags": ["web"]}), raising("black"))
	refused(black, "tier")
	contains(black.deny[0].msg, "guest 105 (web01) is raised to black by its tag web")
	f.decided_in(about({"tags": ["web"]}), raising("yellow")).tier == "yellow"
}

test_a_guest_that_is_tagged_during_a_call_stops_it if {
	refused(f.operated_in(object.union(stop, about({"tags": ["web"]})), raising("red")), "tier")
}

# A call that is red only because a tag made it so does what a yellow one may, and no more.
test_a_raised_call_may_do_no_more if {
	approved := {"parent": {
		"tier": "red", "confirmation": {"state": "argument", "by": "", "channel": ""},
	}}
	site := object.union(raising("red"), {"approval": {
		"argument": true, "channels": [], "approvers": [],
	}})
	f.operated_in(object.union(object.union(stop, approved), about({"tags": ["web"]})), site).allow
	q := object.union(f.run(["qm", "stop", "105"]), approved)
	red := object.union(q, about({"tags": ["web"]}))
	"tier" in f.failed(f.operated_in(red, site))
}

test_relaxed_guests_are_raised_too if {
	d := f.decided_in(
		{
			"tool": {"name": "kill"}, "targets": {"vmids": ["104"]},
			"guests": {"104": object.union(plain, {"tags": ["web"]})},
		},
		raising("red"),
	)
	d.tier == "red"
}

own := {"protected": object.union(f.site.protected, {"protection": {"reason": "not ours"}})}

test_proxmox_own_protection_is_asked_for_above_green if {
	none := {"guests": null}
	every facts in [none, about({}), about({"protection": ""}), about({"protection": 1})] {
		d := f.decided_in(facts, own)
		refused(d, "guests")
		d.guests == {"vmids": ["105"], "max_age_s": 30, "configs": true}
	}
	f.decided_in(about({"protection": "off"}), own).allow
	refused(f.decided_in(about({"protection": "off", "age_s": 31}), own), "guests")
	f.decided_in(about({"kind": "", "status": ""}), own).allow
}

test_what_proxmox_protects_is_protected_above_green if {
	d := f.decided_in(about({"protection": "on"}), own)
	refused(d, "protected")
	contains(
		d.deny[0].msg,
		"guest 105 (web01) is protected by its protection in Proxmox: not ours",
	)
	refused(f.operated_in(object.union(stop, about({"protection": "on"})), own), "protected")
}

# A site that says nothing else of guests asks about none for a read.
test_reads_do_not_ask_for_protection if {
	look := {"tool": {"name": "look"}}
	every facts in [{"guests": null}, about({}), about({"protection": "on"})] {
		f.decided_in(object.union(look, facts), own).allow
	}
	both := {"protected": object.union(own.protected, tagged.protected)}
	refused(f.decided_in(look, both), "guests")
	f.decided_in(about({}), tagged).allow
}
