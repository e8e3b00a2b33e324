package caponier.core.names_test

import data.caponier.core.names

inventory := {"tools": ["tool:look", "resource:look", "tool:stop"], "nodes": ["pve1"]}

found := names.problems | names.warnings

said(site, text) if {
	some w in found with data.site as site with data.inventory as inventory
	startswith(w, text)
}

test_each_unknown_name_is_named if {
	said({"tiers": {"tool:lok": "green"}}, "tiers/tool:lok: there is no tool \"lok\"")
	said({"tiers": {"prompt:look": "green"}}, "tiers/prompt:look: there is no prompt \"look\"")
	said({"roles": {"r": {"tools": ["lok"], "nodes": []}}}, "roles/r/tools/lok: there is no tool")
	said({"relaxed": {"tools": ["lok"]}}, "relaxed/tools/lok: there is no tool")
	said({"protected": {"nodes": {"pve9": {}}}}, "protected/nodes/pve9: there is no node")
	said({"protected": {"services": [{"nodes": ["pve9"]}]}}, "protected/services/0/nodes/pve9: ")
	said({"roles": {"r": {"tools": [], "nodes": ["pve9"]}}}, "roles/r/nodes/pve9: there is no node")
}

test_known_names_pass if {
	site := {
		"cluster_nodes": ["pve2"], "tiers": {"tool:look": "green", "resource:look": "green"},
		"roles": {"r": {"tools": ["*", "look", "resource:look"], "nodes": ["*", "pve1", "pve2"]}},
		"relaxed": {"tools": ["stop"]},
		"protected": {"nodes": {"pve1": {}}, "services": [{"nodes": ["*", "pve2"]}]},
	}
	found == set() with data.site as site with data.inventory as inventory
}

test_no_problems_without_an_inventory if {
	site := {"tiers": {"tool:lok": "green"}, "protected": {"nodes": {"pve9": {}}}}
	found == set() with data.site as site with data.inventory as {}
}

test_only_unknown_nodes_are_problems if {
	site := {"tiers": {"tool:lok": "green"}, "protected": {"nodes": {"pve9": {}}}}
	names.problems == {"protected/nodes/pve9: there is no node \"pve9\""} with data.site as site
		with data.inventory as inventory
}

aliases := {
	"aliases": {"tool:halt": "tool:stop", "tool:end": "tool:stop"},
	"tools": ["tool:stop", "tool:halt", "tool:end"],
}

same_job(site) := found_now if {
	found_now := names.problems with data.site as site with data.inventory as aliases
}

tiers := {"tool:stop": "red", "tool:halt": "red", "tool:end": "black"}

test_what_is_asked_of_a_tool_is_asked_of_those_that_do_its_job if {
	some key in ["snapshot", "undo", "plan_first"]
	every names in [["stop"], ["halt"]] {
		some p in same_job({"tiers": tiers, key: {"tools": names}})
		startswith(p, concat("", [key, "/tools: is asked of \"tool:", names[0]]))
	}
	same_job({"tiers": tiers, key: {"tools": ["stop", "halt"]}}) == set()
}

test_what_an_approval_takes_is_the_same_for_tools_of_one_job if {
	two := {"approvers": 2, "ticket": "", "reason": false}
	one := {"approvers": 1, "ticket": "", "reason": false}
	every needs in [
		{"tool:stop": two}, {"tool:halt": two}, {"tool:stop": two, "*": one},
		{"tool:stop": two, "tool:halt": one},
	] {
		some p in same_job({"tiers": tiers, "approval": {"needs": needs}})
		startswith(p, "approval/needs: is asked of")
	}
	every needs in [
		{"*": two}, {"tool:stop": two, "tool:halt": two}, {"tool:stop": two, "*": two}, {},
	] {
		same_job({"tiers": tiers, "approval": {"needs": needs}}) == set()
	}
}

test_a_tool_that_is_off_needs_nothing if {
	same_job({
		"tiers": {"tool:stop": "red", "tool:halt": "black"}, "undo": {"tools": ["stop"]},
	}) == set()
	same_job({"tiers": {"tool:stop": "red"}, "undo": {"tools": ["stop"]}}) == set()
}

test_a_lower_tier_of_a_tool_of_the_same_job_is_told if {
	lower := {"tiers": {"tool:stop": "red", "tool:halt": "yellow"}}
	told := names.warnings with data.site as lower with data.inventory as aliases
	told == {"tiers/tool:halt: is yellow, and tool:stop, which does the same job, is red"}
}
