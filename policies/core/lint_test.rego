package caponier.core.lint_test

import data.caponier.core.fixture as f

import data.caponier.core.lint

problems(sites) := p if {
	p := lint.problems with data.site as object.union(f.site, sites)
}

test_the_fixture_is_clean if problems({}) == set()

said(sites, text) if {
	some p in problems(sites)
	contains(p, text)
}

test_each_mistake_is_named if {
	said(
		{"principals": {"x": {"auth": ["token"], "roles": ["boss"]}}},
		"principals/x/roles: there is no role \"boss\"",
	)
	said({"claimable_roles": ["boss"]}, "claimable_roles: there is no role")
	said(
		{"roles": {"wide": {"commands": ["pct stat"]}}},
		"\"pct stat\" is neither a group nor an entry",
	)
	said({"roles": {"wide": {"imports": ["ssh"]}}}, "there is no operation \"ssh\"")
	said(
		{"commands": {"pct stat": {"tier": "red"}}},
		"commands/pct stat: is neither a group nor an entry",
	)
	said({"commands": {"pct start": {"tier": "green"}}}, "green is lower than yellow")
	said(
		{"commands": {"lifecycle": {"tier": "green"}}},
		"commands/lifecycle/tier: green is lower than anything in this group",
	)
	said(
		{"commands": {"pct start": {"tier": "yellow"}}},
		"commands/pct start/tier: yellow is not above yellow, which its whole group lifecycle has",
	)
	said(
		{"commands": {"systemctl restart": {"tier": "red"}}},
		concat("; ", [
			"commands/systemctl restart: raises one of several ways to the same effect",
			"raise group service",
		]),
	)
	said(
		{
			"binaries": {
				"wake": {"": {"group": "read", "tier": "green", "operands": [], "options": {}}},
			},
		},
		"binaries/wake: \"wake\" is the name of a group",
	)
	every name in [
		"docker", "podman", "kubectl", "ncat", "setpriv", "pkexec", "machinectl", "systemd-nspawn",
		"lxc-start", "python3.13", "lua5.4",
	] {
		said({"binaries": {name: {}}}, sprintf("binaries/%s: runs other programs", [name]))
	}
	every binary, sub in {
		"pct": "exec", "qm": "sto", "zpool": "list", "systemctl": "rest", "df": "x", "cat": "x",
		"ip": "-b",
		"pvesh": "", "journalctl": "-f",
	} {
		text := sprintf("binaries/%s/%s: is described by the core grammar", [binary, sub])
		said(
			{
				"binaries": {
					binary: {sub: {"group": "own", "tier": "red", "operands": [], "options": {}}},
				},
			},
			text,
		)
	}
	said({"binaries": {"env": {}}}, "binaries/env: runs other programs")
	said({"binaries": {"/opt/x": {}}}, "by one word without a folder")
	said(
		{
			"binaries": {
				"x": {"": {"group": "read", "tier": "green", "operands": ["thing"], "options": {}}},
			},
		},
		"there is no kind of word \"thing\"",
	)
	said({"shell_features": ["substitution"]}, "cannot be granted")
	said({"files": {"read": ["var/log"]}}, "is not an absolute path")
	said({"files": {"read": ["/var/log/"]}}, "is not an absolute path")
	said({"files": {"read": ["/etc/pve/priv"]}}, "can never be reached")
	said({"files": {"write": ["/etc/ssh"]}}, "can never be written")
	every p in ["/", "/etc", "/usr", "/root", "/etc/pve", "/var", "/var/lib"] {
		every direction in ["read", "write"] {
			said({"files": {direction: [p]}}, sprintf("files/%s: %q holds ", [direction, p]))
		}
	}
	said(
		{"protected": {"nodes": {"a.b": {"reason": "xxx"}}}},
		"protected/nodes/a.b: is not the name of a node",
	)
	said({"egress": {"Example.com": f.site.egress["api.example.com"]}}, "egress/Example.com")
	said({"protected": {"hosts": {"192.168.001.61": {"reason": "xxx"}}}}, "192.168.001.61")
	said({"relaxed": {"tools": ["stop"]}}, "no red tier")
	said(
		{"protected": {"services": [{"service": "nginx.servce", "nodes": ["*"], "reason": "xxx"}]}},
		"\"nginx.servce\" ends in no kind of unit",
	)
}

test_snapshot_key_that_takes_none_is_named if {
	rest := {"optional": false, "keep": 3, "keep_days": 7}
	text := concat("", [
		"snapshot: names neither a tier nor tools, so no snapshot would be taken; ",
		"add \"tier: red\"",
	])
	said({"snapshot": rest}, text)
	said({"snapshot": object.union(rest, {"tools": []})}, text)
	problems({"snapshot": object.union(rest, {"tools": ["stop"]})}) == set()
	problems({"snapshot": object.union(rest, {"tier": "red", "tools": []})}) == set()
}

# An operator who protects a guest in a hurry does not have to read the rest of the file.
test_protected_guest_may_be_relaxed_too if problems({"relaxed": {"vmids": ["103"]}}) == set()

test_group_may_be_raised_and_an_entry_above_it if {
	problems({
		"commands": {
			"service": {"tier": "red"}, "systemctl stop": {"tier": "black"},
			"exec": {"tier": "red"},
		},
	}) == set()
}

test_entry_that_is_the_only_way_may_be_raised_alone if {
	problems({"commands": {"pct exec": {"tier": "red"}}}) == set()
}

test_redirections_that_touch_no_file_can_be_granted if {
	problems({"shell_features": ["discard", "merge"]}) == set()
}

test_own_entries_of_the_site_are_known if {
	problems({
		"commands": {"mytool show": {"tier": "red"}},
		"roles": {"wide": {"commands": ["mytool show", "pvesh get /nodes", "transfer"]}},
	}) == set()
}

test_addresses_are_hosts_in_their_one_form if {
	problems({"protected": {"hosts": {
		"fe80::1": {"reason": "xxx"}, "10.0.0.1": {"reason": "xxx"},
	}}}) == set()
}
