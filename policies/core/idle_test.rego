package caponier.core.idle_test

import data.caponier.core.fixture as f
import data.caponier.core.idle

tool(imports, commands) := {"imports": imports, "commands": commands}

declares := {
	"tool:kill": tool(["ssh_exec"], ["pct destroy", "pct status"]),
	"tool:stop": tool(["ssh_exec"], ["pct stop", "pct status"]),
	"tool:look": tool(["ssh_exec"], ["pct status"]),
	"tool:never": tool(["ssh_exec"], ["pct destroy"]),
	"tool:host": tool(["sftp_put"], []), "tool:run": tool(["ssh_script"], ["*"]),
}

found(change) := w if {
	w := idle.warnings with data.site as object.union(clean, change)
		with data.inventory.declares as declares
}

clean := object.union(f.site, {
	"roles": {"reader": {"tools": ["look"]}},
	"relaxed": {"vmids": [], "tools": []},
})

said(change, text) if {
	some w in found(change)
	startswith(w, text)
}

test_data_that_works_is_not_warned_of if found({}) == set()

test_tool_below_what_it_runs_is_named if {
	said(
		{
			"tiers": {"tool:kill": "yellow"},
		},
		"tiers/tool:kill: is yellow, and pct destroy that it runs is red: ",
	)
	said(
		{
			"tiers": {"tool:host": "yellow"},
		},
		"tiers/tool:host: is yellow, and what it writes to a node's files is red: ",
	)
	said(
		{
			"commands": {"lifecycle": {"tier": "red"}},
		},
		"tiers/tool:stop: is yellow, and pct stop that it runs is red: ",
	)
}

test_relaxing_what_stays_red_is_named if {
	said(
		{"relaxed": {
			"tools": ["kill"], "vmids": ["104"],
		}},
		"relaxed/tools/kill: is yellow for the relaxed guests, and pct destroy",
	)
}

test_relaxed_command_of_guests_gives_no_warning if {
	found({
		"commands": {"lifecycle": {"tier": "red"}}, "tiers": {"tool:stop": "red"},
		"relaxed": {"tools": ["stop"], "vmids": ["104"]},
	}) == set()
}

test_role_that_cannot_use_its_tool_is_named if {
	said(
		{
			"roles": {"reader": {"tools": ["stop"]}},
		},
		"roles/reader/tools/stop: it is yellow, and the role's ceiling is green",
	)
	said(
		{
			"roles": {"reader": {"tools": ["tool:host"]}},
		},
		"roles/reader/tools/tool:host: it needs the import sftp_put",
	)
	said(
		{
			"roles": {"wide": {"commands": ["snapshot"]}},
		},
		"roles/wide/tools/look: of pct status, which it runs,",
	)
}

test_no_warnings_without_a_lock if {
	idle.warnings == set() with data.site as object.union(clean, {"tiers": {"tool:kill": "yellow"}})
		with data.inventory as {}
}
