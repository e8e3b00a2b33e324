package caponier.core.check.guest_test

import data.caponier.core.fixture as f

exec_call(text) := {"tool": {"name": "run"}, "parent": {"tool": "run", "commands": [f.guest_cmd(text)], "targets": {"guest_paths": ["/root/x"]}}}

inside(argv) := f.run(array.concat(["pct", "exec", "105", "--keep-env", "0", "--"], argv))

test_text_of_the_call_passes_under_a_time_limit if {
	f.operated(object.union(exec_call("uname -a; df"), inside(["timeout", "-k", "2", "30", "sh", "-c", "uname -a; df"]))).allow
	f.operated(object.union(exec_call("uname -a; df"), inside(["timeout", "-k", "2", "30", "bash", "-c", "uname -a; df"]))).allow
}

test_another_text_is_refused if {
	d := f.operated(object.union(exec_call("uname -a"), inside(["timeout", "-k", "2", "30", "sh", "-c", "uname -a; id"])))
	f.failed(d) == {"command"}
	contains(d.deny[0].msg, "neither the call's own text nor a helper")
}

test_text_of_the_call_without_a_time_limit_is_refused if {
	f.failed(f.operated(object.union(exec_call("ls"), inside(["sh", "-c", "ls"])))) == {"command"}
}

test_empty_text_is_refused if f.failed(f.operated(object.union(exec_call(""), inside(["timeout", "-k", "2", "30", "sh", "-c", ""])))) == {"command"}

test_more_words_after_the_text_are_refused if {
	f.failed(f.operated(object.union(exec_call("ls"), inside(["timeout", "-k", "2", "30", "sh", "-c", "ls", "x"])))) == {"command"}
}

test_another_shell_is_refused if f.failed(f.operated(object.union(exec_call("ls"), inside(["timeout", "-k", "2", "30", "python3", "-c", "ls"])))) == {"command"}

test_text_decided_for_a_node_is_not_for_a_guest if {
	call := {"tool": {"name": "run"}, "parent": {"tool": "run", "commands": [object.union(f.cmd([["ls"]]), {"text": "ls"})]}}
	f.failed(f.operated(object.union(call, inside(["timeout", "-k", "2", "30", "sh", "-c", "ls"])))) == {"command"}
}

test_another_guest_is_refused if {
	d := f.operated(object.union(exec_call("ls"), f.run(["pct", "exec", "106", "--keep-env", "0", "--", "timeout", "-k", "2", "30", "sh", "-c", "ls"])))
	f.failed(d) == {"bound", "command"}
}

test_environment_may_not_leak if {
	every argv in [["pct", "exec", "105", "--"], ["pct", "exec", "105", "--keep-env", "1", "--"], ["pct", "exec", "105", "--keep-env=0", "--"]] {
		"command" in f.failed(f.operated(object.union(exec_call("ls"), f.run(array.concat(argv, ["timeout", "-k", "2", "30", "sh", "-c", "ls"])))))
	}
}

test_divider_is_needed if {
	"command" in f.failed(f.operated(object.union(exec_call("ls"), f.run(["pct", "exec", "105", "--keep-env", "0", "timeout", "-k", "2", "30", "sh", "-c", "ls"]))))
}

test_helpers_pass_on_the_paths_of_the_call if {
	every argv in [
		["test", "-e", "/root/x"], ["stat", "-c", "%F %s", "--", "/root/x"], ["sha256sum", "--", "/root/x"],
		["head", "-c", "1048577", "--", "/root/x"], ["timeout", "-k", "2", "20", "sha256sum", "--", "/root/x"],
	] {
		f.operated(object.union(exec_call("ls"), inside(argv))).tier == "yellow"
	}
}

test_helpers_are_refused_on_other_paths_and_in_other_forms if {
	every argv in [
		["test", "-e", "/root/y"], ["stat", "-c", "%F %s", "--", "/etc/shadow"], ["sha256sum", "/root/x"], ["chmod", "0644", "/root/x"], ["chmod", "644", "--", "/root/x"],
		["chmod", "-R", "0644", "/root/x"], ["head", "-c", "x", "--", "/root/x"], ["cat", "/root/x"], ["rm", "--", "/root/x"], [],
		["timeout", "-s", "9", "20", "sha256sum", "--", "/root/x"], ["timeout", "-k", "2", "x", "sha256sum", "--", "/root/x"],
		["timeout", "-k", "2", "20", "timeout", "-k", "2", "20", "sha256sum", "--", "/root/x"], ["stat", "-c", "$(id)", "--", "/root/x"],
	] {
		f.failed(f.operated(object.union(exec_call("ls"), inside(argv)))) == {"command"}
	}
}
