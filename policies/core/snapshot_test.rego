package caponier.core.snapshot_test

import data.caponier.core.fixture as f
import data.caponier.core.host

none := {"vmids": [], "optional": false, "keep": 0, "days": 0}

rules(more) := {"snapshot": object.union({"optional": false, "keep": 3, "keep_days": 7}, more)}

asked(argv, more) := f.operated_in(f.run(argv), rules(more)).obligations.snapshot

of105 := {"vmids": ["105"], "optional": false, "keep": 3, "days": 7}

test_from_the_tier_on if {
	asked(["pct", "shutdown", "105"], {"tier": "yellow"}) == of105
	asked(["pct", "shutdown", "105"], {"tier": "red"}) == none
	asked(["qm", "stop", "105"], {"tier": "red"}) == of105
	asked(["pct", "status", "105"], {"tier": "yellow"}) == none
	asked(["pct", "shutdown", "105"], {"tier": "yellow", "optional": true}).optional == true
}

test_for_a_tool if {
	asked(["pct", "shutdown", "105"], {"tools": ["stop"]}) == of105
	asked(["pct", "status", "105"], {"tools": ["stop"]}) == none
	asked(["pct", "shutdown", "105"], {"tools": ["look"]}) == none
}

test_no_snapshot_unless_the_site_asks if {
	f.operated(f.run(["pct", "shutdown", "105"])).obligations.snapshot == none
	asked(["pct", "shutdown", "105"], {}) == none
	f.decided_in({}, rules({"tier": "yellow"})).obligations.snapshot == none
}

test_no_snapshot_where_it_would_not_help if {
	every argv in [
		[
			"pct", "destroy", "105",
		],
		["pct", "snapshot", "105", "s1"], ["qm", "rollback", "105", "s1"],
		["qm", "delsnapshot", "105", "s1"],
		["pvesh", "create", "/nodes/pve1/lxc/105/snapshot", "--snapname", "s1"],
		["pvesh", "delete", "/nodes/pve1/qemu/105/snapshot/s1"],
	] {
		asked(argv, {"tier": "yellow"}) == none
	}
}

me := {"id": "host", "auth": "host", "roles": [], "credential_roles": [], "narrowed": false}

by_host(tool, tier, argv) := f.operated_in(
	object.union(f.run(argv), {
		"principal": me, "source": "host", "kind": "host",
		"tool": {
			"name": tool, "imports": ["ssh_exec"], "commands": host.tools[tool].commands,
			"target_kinds": [],
		},
		"parent": {"tool": tool, "tier": tier},
	}),
	rules({"tier": "yellow"}),
)

own := "caponier-0123456789abcdefghijklmnop"

test_the_host_snapshots_and_prunes_only_what_has_its_name if {
	d := by_host("take_snapshot", "yellow", ["pct", "snapshot", "105", own])
	d.allow
	d.obligations.snapshot == none
	by_host("prune_snapshot", "red", ["pct", "delsnapshot", "105", own]).allow
	every argv in [
		[
			"pct", "delsnapshot", "105", "before-upgrade",
		],
		["pct", "delsnapshot", "105", "caponier-x"],
		["pct", "delsnapshot", "105", sprintf("%sq", [own])], ["pct", "rollback", "105", own],
		["pct", "destroy", "105"], ["pct", "stop", "105"], ["pct", "snapshot", "105", own],
	] {
		not by_host("prune_snapshot", "red", argv).allow
	}
	not by_host("take_snapshot", "red", ["pct", "delsnapshot", "105", own]).allow
	not by_host("take_snapshot", "yellow", ["pct", "snapshot", "105", "mine"]).allow
	not by_host("take_snapshot", "yellow", ["pct", "snapshot", "106", own]).allow
	not by_host("take_snapshot", "yellow", ["pct", "snapshot", "103", own]).allow
}
