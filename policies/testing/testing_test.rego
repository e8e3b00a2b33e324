package caponier.testing.questions_test

import data.caponier.core.fixture
import data.caponier.testing
import data.caponier.testing.lowered
import data.caponier.testing.operations
import data.caponier.testing.parts

world := {
	"tools": {"tool:stop": {
		"kind": "tool", "plugin": {"name": "p", "version": "1.0.0", "digest": "sha256:00"},
		"tool": {
			"name": "stop", "imports": ["ssh_exec", "sftp_put"], "commands": ["pct stop"],
			"target_kinds": ["vmids"], "hints": {
				"read_only": false, "destructive": true, "idempotent": false, "open_world": false,
			},
		},
		"on_node": true, "confirm": "sure", "params": {
			"vmid": {"type": "integer", "target": "vmid", "required": true},
			"node": {"type": "string", "target": "node", "required": false},
			"text": {"type": "string", "target": "guest_command", "required": false},
			"sure": {"type": "boolean", "target": "", "required": false},
		},
	}},
	"nodes": [
		{
			"name": "pve1", "cluster": "lab", "host": "192.0.2.1", "aliases": [], "port": 22,
			"user": "root", "is_default": true,
		},
		{
			"name": "pve2", "cluster": "lab", "host": "192.0.2.2", "aliases": [], "port": 22,
			"user": "root", "is_default": false,
		},
	],
	"words": ["eval"], "shells": ["sh"],
}

site := object.union(fixture.site, {
	"principals": {"ann": {"auth": ["token"], "roles": ["operator"]}},
	"tiers": {"tool:stop": "yellow"},
})

asked(args) := q if {
	q := testing.call("stop", args, "ann") with data.testing as world with data.site as site
}

test_a_call_names_what_it_acts_on if {
	q := asked({"vmid": 101, "sure": true})
	q.targets.vmids == ["101"]
	q.targets.nodes == ["pve1"]
	q.principal.roles == ["operator"]
	q.source == "http"
	q.confirmation.state == "argument"
	asked({"vmid": 101, "node": "pve2"}).targets.nodes == ["pve2"]
}

test_each_mistake_is_named if {
	some text in parts.mistakes("stop", {"vmid": 101, "x": 1}, "ann") with data.testing as world
		with data.site as site
	text == `stop has no argument "x", only node, sure, text, vmid`
	cases := [
		["stopp", {}, "ann", `the lock has no tool "stopp"; there is stop`],
		["stop", {}, "ann", `stop needs the argument "vmid"`],
		["stop", {"vmid": "101"}, "ann", `stop: the argument "vmid" is of type integer`],
		["stop", {"vmid": 7}, "ann", "stop: vmid: 7 is not in the form of a vmid"],
		[
			"stop", {"vmid": 101, "node": "pve9"}, "ann",
			"stop: node: there is no node pve9; the inventory has pve1, pve2",
		],
		[
			"stop", {"vmid": 101}, "bob",
			`data.yaml lists no principal bob; write {"id": …, "auth": …} for another`,
		],
		["stop", [], "ann", "the arguments are no object"],
	]
	every c in cases {
		found := parts.mistakes(c[0], c[1], c[2]) with data.testing as world with data.site as site
		c[3] in found
	}
}

test_without_a_lock_it_says_so if {
	some text in parts.mistakes("stop", {}, "ann") with data.testing as {} with data.site as site
	startswith(text, "no lock is known")
}

test_an_operation_is_of_its_call if {
	op := testing.operation(asked({"vmid": 101}), "ssh_exec", {"argv": ["pct", "stop", "101"]})
		with data.testing as world
		with data.site as site
	op.target.host == "192.0.2.1"
	op.parent.clusters == ["lab"]
	op.command.calls == [{"argv": ["pct", "stop", "101"], "static": true}]
	odd := parts.odd(asked({"vmid": 101}), "sftp_put", {"path": "/x", "mod": "1"})
		with data.testing as world
	count(odd) == 2
}

test_at_guests_and_approved_change_one_thing if {
	q := asked({"vmid": 101})
	sunday := {"unix_ms": 1767517200000, "hour_utc": 9, "minute_utc": 0, "weekday": 0}
	testing.at(q, 0, 9).time == sunday
	testing.at(q, "sun", "09:00").time == sunday
	testing.at(q, "sat", "23:59").time.minute_utc == 59
	every t in [["Sun", 9], [7, 9], ["sun", 24], ["sun", 9.5], ["sun", "24:00"], ["", ""]] {
		not known(t[0], t[1])
	}
	testing.guests(q, {"101": {"tags": ["prod"]}}).guests["101"].tags == ["prod"]
	testing.approved(q, "bob").confirmation.by == "bob"
	parts.odd_guests({"101": {"tag": 1}}) == {`a guest has no "tag"`}
	parts.odd_guests({"x": {}}) == {"x is no VMID; write it as text"}
}

known(day, time) if {
	parts.weekday(day)
	parts.minute(time)
}

test_texts_are_lowered if {
	lowered.calls(`a 'b c' && d | e`) == [["a", "b c"], ["d"], ["e"]]
	lowered.script(`a "b" && d`).rendered == `'a' 'b' && 'd'`
	lowered.script("a; b").features == ["sequence"]
	lowered.script("a; b").rendered == "'a' ; 'b'"
	every text in ["a $(b)", "a > b", "", "a &&", "eval x", "x sh -c y", "A=1 b", `a"b"`] {
		lowered.odd(text) with data.testing as world
	}
	not lowered.odd("pct status 101") with data.testing as world
}

test_every_operation_has_its_part if {
	every name, _ in operations.takes {
		usual := {
			"argv": ["x"], "script": "x", "path": "/x", "local": "x", "host": "example.com",
		}
		op := object.filter(usual, operations.takes[name])
		count([v | some v in operations.part(name, op); v != null]) == 1
	}
}
