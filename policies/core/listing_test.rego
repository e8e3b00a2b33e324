package caponier.core.listing_test

import data.caponier.core.fixture as f
import data.caponier.core.listing
import data.caponier.core.roles

listed(name) := c if {
	some c in listing.commands with data.site as f.site
	c.name == name
}

test_entry_is_listed_with_what_it_takes if {
	c := listed("pct snapshot")
	c.operands == ["VMID", "SNAPNAME"]
	c.options == {"--description": "TEXT"}
	[c.group, c.tier, c.site] == ["snapshot", "yellow", false]
}

test_flags_have_no_value_and_lists_show_theirs if {
	c := listed("ss")
	c.options["-t"] == ""
	c.options["-f"] == "inet|inet6|unix|link|netlink"
	c.source != ""
}

test_tier_is_the_sites if {
	listed("qm stop").tier == "red"
	listed("qm start").tier == "yellow"
}

test_commands_of_the_site_are_listed if listed("mytool show").site == true

# A caller's list. host/policy/lister_test.go holds lists against real decisions.
asked(id, node, word, change) := l if {
	q := object.union_n([
		f.a_call,
		{
			"principal": {"id": id}, "targets": {"nodes": [node], "vmids": []},
			"tool": {"name": "run", "imports": ["ssh_script"], "commands": ["*"]},
		},
		change,
	])
	question := {"questions": [q], "word": word, "more_nodes": 0}
	l := listing.allowed with input as question with data.site as f.site
}

test_operator_is_told_what_it_may_run if {
	l := asked("ann", "pve1", "qm start", {})
	l.tools == [{"tool": "run", "nodes": ["pve1"]}]
	[c.command | some c in l.commands] == ["qm start"]
	l.commands[0].tier == "yellow"
	l.commands[0].approval == false
	stop := asked("ann", "pve1", "qm stop", {}).commands[0]
	[stop.tier, stop.approval] == ["red", true]
}

test_programs_are_counted_and_commands_are_bounded if {
	l := asked("ann", "pve1", "", {})
	l.commands == []
	some p in l.programs
	p.program == "qm"
	all := asked("ann", "pve1", "e", {})
	count(all.commands) == 40
	all.more_commands > 0
}

test_no_commands_are_listed_if_every_call_would_be_refused if {
	none := {"tools": [], "programs": [], "commands": [], "more_commands": 0, "more_nodes": 0}
	every l in [
		asked("nobody", "pve1", "", {}), asked("two", "pve1", "", {}),
		asked("ann", "agent1", "", {}), asked("ann", "pve1", "", {"tool": {"name": "never"}}),
		asked("ann", "pve1", "", {"mode": {"freezes": [{
			"kind": "all", "name": "", "reason": "x",
		}]}}),
		asked("ann", "pve1", "", {"mode": {"read_only": true}}),
		asked("ann", "pve1", "", {
			"principal": {"narrowed": true},
		}),
		asked("ann", "pve1", "none", {}),
	] {
		l == none
	}
}

test_rule_of_the_site_against_the_caller_empties_the_list if {
	l := asked("ann", "pve1", "qm start", {})
		with data.caponier.site.call.deny as {{"id": "x", "msg": "no"}}
	l.commands == []
}

test_commands_without_an_approver_are_not_listed if {
	commands := asked("ann", "pve1", "qm stop", {}).commands
		with data.caponier.core.approval.channels as []
	commands == []
}

test_commands_in_guests_and_stages_are_not_listed if {
	asked("ann", "pve1", "pct exec", {}).commands == []
	asked("ann", "pve1", "pct push", {}).commands == []
}

test_refusals_name_the_tool_to_callers_that_have_it if {
	site := object.union(f.site, {"tiers": {"tool:list_allowed_commands": "green"}})
	roles.lists_commands with input as f.a_call with data.site as site
	not roles.lists_commands with input as f.a_call with data.site as f.site
	reader := object.union(f.a_call, {"principal": {"id": "two"}})
	not roles.lists_commands with input as reader with data.site as site
	d := f.decided_in({"tool": {"name": "run"}, "commands": [f.cmd([["docker"]])]}, {
		"tiers": {"tool:list_allowed_commands": "green"},
	})
	contains(d.deny[0].msg, "list_allowed_commands shows what you may run: ")
}
