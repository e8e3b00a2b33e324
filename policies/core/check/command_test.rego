package caponier.core.check.command_test

import data.caponier.core.fixture as f

test_unknown_program_is_refused if {
	d := f.operated(f.run(["custom-script.sh"]))
	"command" in f.failed(d)
	contains(d.deny[0].msg, "\"custom-script.sh\" is not a command that policy knows")
}

test_command_that_was_not_understood_is_refused if {
	q := object.union(f.cmd([]), {"parsed": false, "error": "expansion at 1:5"})
	d := f.operated({"command": q})
	"command" in f.failed(d)
	contains(d.deny[0].msg, "it was not understood: expansion at 1:5")
}

test_no_command_is_no_command if {
	d := f.operated({"command": f.cmd([])})
	"command" in f.failed(d)
	contains(d.deny[0].msg, "it holds no command")
}

test_one_unknown_of_two_is_refused if {
	"command" in f.failed(f.operated({"command": f.cmd([["uptime"], ["rm", "-rf", "/"]])}))
}

test_word_that_a_shell_would_expand_is_refused if {
	q := object.union(f.cmd([]), {"calls": [{"argv": ["uptime"], "static": false}]})
	d := f.operated({"command": q})
	"command" in f.failed(d)
	contains(d.deny[0].msg, "has a word that a shell would expand")
}

test_joiner_must_be_granted if {
	piped := object.union(f.cmd([["uptime"], ["df", "-h"]]), {"features": ["pipe"]})
	f.operated({"command": piped}).allow
	d := f.operated({"command": object.union(piped, {"features": ["pipe", "or"]})})
	f.failed(d) == {"command"}
	contains(d.deny[0].msg, "the shell feature or is not granted")
}

test_bytes_that_were_not_decided_are_refused if {
	d := f.operated({"command": object.union(f.cmd([["uptime"]]), {"stdin": {"bytes": 3}})})
	f.failed(d) == {"command"}
	contains(d.deny[0].msg, "no command takes bytes that were not decided")
}

test_role_must_be_granted_the_command if {
	reader := {
		"principal": {"id": "two", "credential_roles": ["reader"]}, "tool": {"name": "look"},
		"parent": {"tool": "look"},
	}
	f.operated(object.union(reader, f.run(["uptime"]))).allow
	d := f.operated(object.union(reader, f.run(["tail", "/var/log/syslog"])))
	f.failed(d) == {"command"}
	contains(d.deny[0].msg, "none of your roles may run \"tail\" (group files)")
}

test_one_entry_can_be_granted_alone if {
	change := object.union(
		f.tool("look"),
		{"principal": {"id": "two", "credential_roles": ["reader"]}, "parent": {"tier": "yellow"}},
	)
	site := {"roles": {"reader": {"commands": ["tail"]}}}
	f.operated_in(object.union(change, f.run(["tail", "/var/log/syslog"])), site).allow
	q := object.union(change, f.run(["cat", "/var/log/syslog"]))
	"command" in f.failed(f.operated_in(q, site))
}

test_command_of_a_call_is_held_to_the_same if {
	f.decided({"tool": {"name": "run"}, "commands": [f.cmd([["uptime"]])]}).allow
	d := f.decided({"tool": {"name": "run"}, "commands": [f.cmd([["rm", "x"]])]})
	f.failed(d) == {"command"}
	contains(d.deny[0].msg, "\"rm\" is not a command that policy knows")
}

test_guest_is_not_entered_by_a_node_command if {
	d := f.decided({
		"tool": {"name": "run"},
		"commands": [f.cmd([["pct", "exec", "105", "--keep-env", "0", "--", "ls"]])],
	})
	f.failed(d) == {"command"}
	contains(d.deny[0].msg, "pct exec is for tools that name the text they run in a guest")
}

test_text_for_a_guest_passes_unparsed_where_the_site_says_any if {
	f.decided({
		"tool": {"name": "run"}, "commands": [f.raw_cmd("for i in *; do echo $i; done")],
	}).allow
}

test_text_for_a_guest_is_held_against_the_table_where_the_site_says_table if {
	table := {"guest_commands": "table"}
	q := f.cmd([["uptime"]])
	text := object.union(q, {"guest": true, "text": "uptime", "rendered": "'uptime'"})
	f.decided_in({"tool": {"name": "run"}, "commands": [text]}, table).allow
	r := object.union(text, {"parsed": false})
	"command" in f.failed(f.decided_in({"tool": {"name": "run"}, "commands": [r]}, table))
	"command" in f.failed(f.decided_in(
		{
			"tool": {"name": "run"},
			"commands": [object.union(f.cmd([["rm", "x"]]), {"guest": true, "text": "rm x"})],
		},
		table,
	))
}

test_text_for_a_guest_is_refused_where_the_site_says_nothing if {
	"command" in f.failed(f.decided_in(
		{
			"tool": {"name": "run"}, "commands": [f.raw_cmd("ls")],
		},
		{"guest_commands": "none"},
	))
}

test_program_of_the_site_passes if f.operated(f.run(["mytool", "show", "105", "--deep"])).allow

test_program_of_the_site_is_held_to_its_words if {
	"command" in f.failed(f.operated(f.run(["mytool", "show", "105", "--wide"])))
}

test_command_has_at_most_512_words if {
	argv := array.concat(["echo"], split(sprintf("%0512d", [0]), ""))
	d := f.operated(f.run(argv))
	"command" in f.failed(d)
	some r in d.deny
	contains(r.msg, "a command has more than 512 words")
}
