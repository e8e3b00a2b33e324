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
