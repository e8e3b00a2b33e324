package caponier.core.check.guest_test

import data.caponier.core.fixture as f

# A call with a text for the guest that was not parsed.
exec_call(text) := exec_of(f.raw_cmd(text))

exec_of(cmd) := {"tool": {"name": "run"}, "parent": {
	"tool": "run", "commands": [cmd],
	"targets": {"guest_paths": ["/root/x"]},
}}

sh(text) := inside(["timeout", "-k", "2", "30", "sh", "-c", text])

rendered := "'ls' '/x$(id -un > /tmp/pwned)'"

# Two texts that the parser and real shells read differently: the parser sees one ls.
joined := f.guest_cmd("ls \"/x$\\\n(id -un > /tmp/pwned)\"", rendered, [[
	"ls", "/x$(id -un > /tmp/pwned)",
]])

commented := f.guest_cmd(
	"cat -- /etc/hostname #\\\n/bin/rm /tmp/victim",
	"'cat' '--' '/etc/hostname' '/bin/rm' '/tmp/victim'",
	[["cat", "--", "/etc/hostname", "/bin/rm", "/tmp/victim"]],
)

test_of_a_parsed_text_only_the_rendering_runs_in_either_mode if {
	every cmd in [joined, commented] {
		every mode in ["any", "table"] {
			d := f.operated_in(object.union(exec_of(cmd), sh(cmd.text)), {"guest_commands": mode})
			f.failed(d) == {"command"}
			contains(d.deny[0].msg, "neither the call's own text nor a helper")
			q := object.union(exec_of(cmd), sh(cmd.rendered))
			f.operated_in(q, {"guest_commands": mode}).allow
		}
	}
}

test_unparsed_text_runs_in_mode_any_alone if {
	call := object.union(exec_call("uname -a $(id)"), sh("uname -a $(id)"))
	f.operated(call).allow
	f.failed(f.operated_in(call, {"guest_commands": "table"})) == {"command"}
}

test_unparsed_text_has_no_calls if {
	cmd := object.union(f.raw_cmd("ls"), {"calls": [{"argv": ["ls"], "static": true}]})
	f.failed(f.operated(object.union(exec_of(cmd), sh("ls")))) == {"command"}
	f.failed(f.decided({"tool": {"name": "run"}, "commands": [cmd]})) == {"command"}
}

test_parsed_text_without_a_rendering_is_refused if {
	cmd := f.guest_cmd("ls", "", [["ls"]])
	every mode in ["any", "table"] {
		f.failed(f.decided_in(
			{
				"tool": {"name": "run"}, "commands": [cmd],
			},
			{"guest_commands": mode},
		)) == {"command"}
		q := object.union(exec_of(cmd), sh(""))
		f.failed(f.operated_in(q, {"guest_commands": mode})) == {"command"}
		r := object.union(exec_of(cmd), sh("ls"))
		f.failed(f.operated_in(r, {"guest_commands": mode})) == {"command"}
	}
}

test_text_that_was_not_parsed_is_refused if {
	cmd := object.union(f.raw_cmd("ls"), {"parsed": null})
	f.failed(f.operated(object.union(exec_of(cmd), sh("ls")))) == {"command"}
	f.failed(f.decided({"tool": {"name": "run"}, "commands": [cmd]})) == {"command"}
}

inside(argv) := f.run(array.concat(["pct", "exec", "105", "--keep-env", "0", "--"], argv))

test_text_of_the_call_passes_under_a_time_limit if {
	f.operated(object.union(
		exec_call("uname -a; df"),
		inside(["timeout", "-k", "2", "30", "sh", "-c", "uname -a; df"]),
	)).allow
	f.operated(object.union(
		exec_call("uname -a; df"),
		inside(["timeout", "-k", "2", "30", "bash", "-c", "uname -a; df"]),
	)).allow
}

test_another_text_is_refused if {
	q := object.union(exec_call("uname -a"), inside([
		"timeout", "-k", "2", "30", "sh", "-c", "uname -a; id",
	]))
	d := f.operated(q)
	f.failed(d) == {"command"}
	contains(d.deny[0].msg, "neither the call's own text nor a helper")
}

test_text_of_the_call_without_a_time_limit_is_refused if {
	f.failed(f.operated(object.union(exec_call("ls"), inside(["sh", "-c", "ls"])))) == {"command"}
}

test_empty_text_is_refused if {
	q := object.union(exec_call(""), inside(["timeout", "-k", "2", "30", "sh", "-c", ""]))
	f.failed(f.operated(q)) == {"command"}
}

test_more_words_after_the_text_are_refused if {
	q := object.union(exec_call("ls"), inside(["timeout", "-k", "2", "30", "sh", "-c", "ls", "x"]))
	f.failed(f.operated(q)) == {"command"}
}

test_another_shell_is_refused if {
	q := object.union(exec_call("ls"), inside(["timeout", "-k", "2", "30", "python3", "-c", "ls"]))
	f.failed(f.operated(q)) == {"command"}
}

test_text_decided_for_a_node_is_not_for_a_guest if {
	call := {
		"tool": {"name": "run"},
		"parent": {"tool": "run", "commands": [object.union(f.cmd([["ls"]]), {"text": "ls"})]},
	}
	q := object.union(call, inside(["timeout", "-k", "2", "30", "sh", "-c", "ls"]))
	f.failed(f.operated(q)) == {"command"}
}

test_another_guest_is_refused if {
	d := f.operated(object.union(
		exec_call("ls"),
		f.run([
			"pct", "exec", "106", "--keep-env", "0", "--", "timeout", "-k", "2", "30", "sh",
			"-c", "ls",
		]),
	))
	f.failed(d) == {"bound", "command"}
}

test_environment_may_not_leak if {
	every argv in [
		["pct", "exec", "105", "--"], ["pct", "exec", "105", "--keep-env", "1", "--"],
		["pct", "exec", "105", "--keep-env=0", "--"],
	] {
		"command" in f.failed(f.operated(object.union(
			exec_call("ls"),
			f.run(array.concat(argv, ["timeout", "-k", "2", "30", "sh", "-c", "ls"])),
		)))
	}
}

test_divider_is_needed if {
	"command" in f.failed(f.operated(object.union(
		exec_call("ls"),
		f.run([
			"pct", "exec", "105", "--keep-env", "0", "timeout", "-k", "2", "30", "sh",
			"-c", "ls",
		]),
	)))
}

test_helpers_pass_on_the_paths_of_the_call if {
	every argv in [
		["test", "-e", "/root/x"], [
			"stat", "-c", "%F %s", "--", "/root/x",
		],
		["sha256sum", "--", "/root/x"],
		["head", "-c", "1048577", "--", "/root/x"], [
			"timeout", "-k", "2", "20", "sha256sum", "--", "/root/x",
		],
	] {
		f.operated(object.union(exec_call("ls"), inside(argv))).tier == "yellow"
	}
}

test_helpers_are_refused_on_other_paths_and_in_other_forms if {
	every argv in [
		["test", "-e", "/root/y"], [
			"stat", "-c", "%F %s", "--", "/etc/shadow",
		],
		["sha256sum", "/root/x"], ["chmod", "0644", "/root/x"], ["chmod", "644", "--", "/root/x"],
		["chmod", "-R", "0644", "/root/x"], [
			"head", "-c", "x", "--", "/root/x",
		],
		["cat", "/root/x"], ["rm", "--", "/root/x"], [],
		[
			"timeout", "-s", "9", "20", "sha256sum", "--", "/root/x",
		],
		["timeout", "-k", "2", "x", "sha256sum", "--", "/root/x"],
		[
			"timeout", "-k", "2", "20", "timeout", "-k", "2", "20", "sha256sum", "--", "/root/x",
		],
		["stat", "-c", "$(id)", "--", "/root/x"],
	] {
		f.failed(f.operated(object.union(exec_call("ls"), inside(argv)))) == {"command"}
	}
}
