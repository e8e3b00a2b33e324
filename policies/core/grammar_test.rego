package caponier.core.grammar_test

import data.caponier.core.fixture as f
import data.caponier.core.grammar

described(argv) := d if {
	d := grammar.describe(argv) with data.site as f.site
}

test_entry_of_two_words if described(["pct", "status", "101"]).id == "pct status"

test_entry_of_one_word if described(["uptime"]).id == "uptime"

test_longest_sub_command_wins if {
	described(["ip", "addr", "show", "dev", "vmbr0"]).id == "ip addr show"
	described(["ip", "addr"]).id == "ip addr"
	described(["pvenode", "task", "list"]).id == "pvenode task list"
	described(["pvenode", "wakeonlan", "pve2"]).id == "pvenode wakeonlan"
}

test_entry_of_an_api_path if {
	d := described(["pvesh", "get", "/nodes/pve1/lxc/101/status/current"])
	d.id == "pvesh get /nodes/{node}/lxc/{vmid}/status/current"
	d.words == [["node", "pve1"], ["vmid", "101"]]
}

test_entry_of_the_site if described(["mytool", "show", "105"]).id == "mytool show"

test_words_that_hold_spaces_name_nothing if {
	not described(["pct status", "101"])
	not described(["ip", "addr show"])
	not described(["pct", "status 101"])
	not described(["pvenode", "task list"])
}

test_empty_words_name_nothing if {
	not described([])
	not described([""])
	not described(["pct", ""])
	not described(["uptime", ""])
	not described(["pct", "status", ""])
}

test_options_may_stand_anywhere_before_the_divider if {
	described(["pct", "status", "--verbose", "101"]).words == [["vmid", "101"]]
	described(["pct", "shutdown", "--timeout", "5", "101", "--forceStop", "1"]).id == "pct shutdown"
	described(["systemctl", "restart", "--", "nginx"]).words == [["service", "nginx"]]
}

test_value_of_an_option_is_never_an_option if {
	not described(["pct", "snapshot", "101", "ab", "--description", "--vmstate"])
	not described(["journalctl", "-u", "-f"])
}

test_option_at_the_end_without_its_value_is_refused if {
	not described(["pct", "shutdown", "101", "--timeout"])
}

test_option_given_twice_is_refused if not described(["journalctl", "-n", "5", "-n", "6"])

test_divider_only_where_the_entry_takes_it if {
	not described(["pct", "status", "--", "101"])
	described(["cat", "--", "/var/log/x"])
}

test_required_options if {
	not described(["pct", "push", "101", "/run/a/b", "/x"])
	not described(["pct", "exec", "101", "--", "ls"])
	described(["pct", "exec", "101", "--keep-env", "0", "--", "ls", "-la"]).guest == ["ls", "-la"]
}

test_long_words_are_refused if {
	long := concat("", ["/", sprintf("%04095d", [0])])
	not described(["cat", long])
	not described(["pct", "push", "101", long, "/x"])
	described(["cat", substring(long, 0, 4095)])
}

test_optional_and_repeated_operands if {
	described(["zpool", "list"])
	described(["zpool", "list", "rpool"])
	not described(["zpool", "list", "rpool", "1tank"])
	described(["cat", "/a", "/b", "/c"])
	described(["ps", "aux"])
	not described(["ps", "auxe"])
}

# What the shortcuts of lookup rely on: only the programs under depth have sub-commands of more than
# one word.
test_sub_commands_of_several_words_are_under_depth if {
	every binary, subs in data.core.grammar.commands {
		every sub, _ in subs {
			count(split(sub, " ")) + 1 <= max(object.get(data.core.grammar.depth, binary, [2]))
		}
	}
}

test_every_entry_has_all_fields if {
	every entry in entries {
		entry.tier in {"green", "yellow", "red", "black"}
		is_string(entry.group)
		is_array(entry.operands)
		is_object(entry.options)
		every kind in entry.options { known(option_kind(kind)) }
		every kind in entry.operands { known(plain(kind)) }
	}
	count(entries) > 60
}

entries contains e if {
	some subs in data.core.grammar.commands
	some e in subs
	not e.api
}

entries contains e if {
	some subs in data.core.grammar.commands
	some method in subs
	some e in method.paths
}

plain(kind) := trim_right(kind, "?*") if is_string(kind)

option_kind(kind) := trim_right(kind, "?*") if is_string(kind)

option_kind(kind) := kind if is_array(kind)

plain(kind) := kind if is_array(kind)

known("flag")

known("switch")

known(kind) if is_array(kind)

known(kind) if {
	every k in split(kind, "|") { data.core.grammar.kinds[k] }
}

test_every_pattern_is_anchored if {
	every name, p in data.core.grammar.kinds {
		regex.is_valid(p)
		startswith(p, "^")
		endswith(p, "$")
		not ends_in_newline(name, p)
	}
}

# Only text for people may hold a newline.
ends_in_newline(name, p) if {
	name != "text"
	some w in ["x\n", "101\n", "/x\n", "1\n", "pve1\n", "a:b\n"]
	regex.match(p, w)
}
