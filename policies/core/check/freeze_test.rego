package caponier.core.check.freeze_test

import data.caponier.core.fixture as f

mode(freezes) := {"mode": {"freezes": freezes}}

of(kind, name) := mode([{"kind": kind, "name": name, "reason": "looking into it"}])

digest := f.head.plugin.digest

stopping := f.run(["pct", "stop", "105"])

aliases := {"nodes": [
	{"name": "pve1", "cluster": "lab", "host": "192.168.1.74", "aliases": ["pve1-admin"]},
	{"name": "pve1-admin", "cluster": "lab", "host": "192.168.1.74", "aliases": ["pve1"]},
]}

test_frozen_call_is_refused if f.failed(f.decided(of("all", ""))) == {"freeze"}

test_frozen_operation_is_refused if {
	f.failed(f.operated(object.union(of("all", ""), f.run(["pct", "list"])))) == {"freeze"}
}

test_freeze_of_a_part_of_the_question_refuses_it if {
	every z in [
		["all", ""], ["principal", "ann"], ["tool", "stop"], ["node", "pve1"], ["plugin", digest],
	] {
		f.failed(f.decided(of(z[0], z[1]))) == {"freeze"}
		f.failed(f.operated(object.union(of(z[0], z[1]), stopping))) == {"freeze"}
	}
}

test_freeze_of_other_things_does_not_refuse_it if {
	every z in [
		["principal", "two"], ["tool", "kill"], ["node", "pve2"], ["node", "pve"],
		["plugin", "guests"],
	] {
		f.decided(of(z[0], z[1])).allow
		f.operated(object.union(of(z[0], z[1]), stopping)).allow
	}
}

test_node_that_a_command_names_is_concerned if {
	other := f.run(["pvesh", "get", "/nodes/pve2/status"])
	f.failed(f.operated(object.union(of("node", "pve2"), other))) == {"freeze"}
	call := {"tool": {"name": "run"}, "commands": [other.command]}
	f.failed(f.decided(object.union(of("node", "pve2"), call))) == {"freeze"}
}

test_node_of_the_running_call_is_concerned if {
	elsewhere := object.union(stopping, {"target": {"node": "pve2"}})
	f.failed(f.operated(object.union(of("node", "pve1"), elsewhere))) == {"freeze"}
}

test_node_is_frozen_by_each_of_its_names if {
	f.failed(f.decided(object.union(of("node", "pve1-admin"), aliases))) == {"freeze"}
	q := object.union(object.union(of("node", "pve1-admin"), aliases), stopping)
	f.failed(f.operated(q)) == {"freeze"}
}

# The host gives "?" to an entry that it cannot read.
test_freeze_of_an_unknown_kind_freezes_everything if {
	every kind in ["?", "", "NODE", null] { f.failed(f.decided(of(kind, "x"))) == {"freeze"} }
}

test_invalid_list_freezes_everything if {
	every list in [null, {}, "", 0] { f.failed(f.decided(mode(list))) == {"freeze"} }
}

test_refusal_says_what_is_frozen_and_why if {
	d := f.decided(of("node", "pve1"))
	startswith(d.deny[0].msg, "node pve1 is frozen: looking into it · ")
	e := f.decided(of("all", ""))
	startswith(e.deny[0].msg, "everything is frozen: looking into it")
}

test_question_without_freezes_passes if f.decided({}).allow

test_freeze_that_cannot_be_read_freezes_everything if {
	every bad in [
		[], {}, "all", 1, null, {"kind": "tool"}, {"name": "x"}, {"kind": "tool", "name": 1},
	] {
		"freeze" in f.failed(f.decided(mode([bad])))
	}
}
