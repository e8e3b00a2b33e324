package caponier.core.grammar_gnu_test

import data.caponier.core.fixture as f
import data.caponier.core.grammar

described(line) := d if {
	d := grammar.describe(split(line, " ")) with data.site as f.site
}

test_short_options_may_be_joined if {
	described("ss -tlnp").id == "ss"
	described("df -hT").id == "df"
	described("journalctl -xn50 -u nginx").words == [["countall", "50"], ["unit", "nginx"]]
	described("journalctl -xn 50").words == [["countall", "50"]]
	not described("ss -tlK")
	not described("journalctl -xnx")
	not described("journalctl -nx50")
}

test_long_options_take_values_in_the_same_word_too if {
	described("journalctl --since=yesterday").words == [["when", "yesterday"]]
	described("journalctl --since yesterday").words == [["when", "yesterday"]]
	described("df --output=source,size").words == [["columns", "source,size"]]
	not described("df --output source")
	not described("journalctl --since=")
	not described("df --all=1")
	not described("journalctl --sinc=today")
}

test_value_of_an_option_may_be_a_number_below_zero if {
	described("head -n -5 /var/log/x").words == [["readpath", "/var/log/x"], ["signed", "-5"]]
	described("journalctl -S -1h").words == [["when", "-1h"]]
	described("journalctl -b -1 -u a").words == [["boot", "-1"], ["unit", "a"]]
	described("journalctl -b -u a").words == [["unit", "a"]]
	described("head -20 /var/log/x").words == [["readpath", "/var/log/x"], ["count", "20"]]
	not described("journalctl -u -1")
	not described("head -n -f /var/log/x")
}

test_value_of_an_option_is_no_operand if {
	described("grep -m 5 x /var/log/y").words == [
		["pattern", "x"], ["readpath", "/var/log/y"], ["count", "5"],
	]
	not described("grep -m x /var/log/y")
	not described("sort -t /var/log/x -o /etc/y")
}

test_operand_after_the_divider_is_no_option if {
	described("grep -i -- x /var/log/y").words == [["pattern", "x"], ["readpath", "/var/log/y"]]
	not described("grep -- -r /etc")
}

test_options_of_a_program_without_repetition if {
	described("journalctl -u a -u b").words == [["unit", "a"], ["unit", "b"]]
	not described("journalctl -k -k")
	described("lspci -n -n -vvv").id == "lspci"
}

test_operand_has_the_kind_that_fits if {
	described("cat /proc/loadavg").words == [["procfile", "/proc/loadavg"]]
	described("cat /proc/1/environ").words == [["readpath", "/proc/1/environ"]]
	described("df -h /mnt").words == [["place", "/mnt"]]
}

test_program_without_files_reads_its_input if {
	described("grep x").group == "read"
	described("cat /proc/loadavg").group == "read"
	described("grep x /etc/hosts").group == "files"
	described("tail -n 5").group == "read"
}

test_options_stand_before_a_sub_command_where_the_program_takes_them if {
	described("ip -4 -br addr").id == "ip addr"
	described("ip -s -s link show dev vmbr0").words == [["link", "vmbr0"]]
	described("ip a").id == "ip addr"
	described("ip -br a s vmbr0").words == [["link", "vmbr0"]]
	described("systemctl --no-pager status nginx").words == [["unit", "nginx"]]
	described("systemctl --failed").id == "systemctl"
	not described("ip -batch /tmp/x addr")
	not described("ip -n x addr")
	not described("ip addr -4")
	not described("systemctl -H x status nginx")
	not described("systemctl -n status nginx")
	not described("pct --verbose status 101")
}

test_words_of_iproute_are_options_without_a_hyphen if {
	described("ip route show table main dev vmbr0").id == "ip route show"
	not described("ip link show dev")
	not described("ip link show dev dev dev")
	not described("ip link set vmbr0 down")
	not described("ip netns exec x sh")
}

test_report_every_so_often_says_how_often if {
	described("vmstat 1 5").id == "vmstat"
	described("zpool iostat -v rpool 1 2").id == "zpool iostat"
	not described("vmstat 1")
	not described("zpool iostat 1")
}

test_required_options_may_be_joined if {
	described("top -bn1").id == "top"
	described("sed -n 1,5p /etc/hosts").id == "sed"
	not described("top -b")
	not described("top -n1")
	not described("sed 1,5p /etc/hosts")
	not described("sed -n 1e /etc/hosts")
}

test_switch_of_proxmox_may_lack_its_value if {
	described("pct status 101 --verbose 1").words == [["vmid", "101"], ["switch", "1"]]
	described("pct status 101 --verbose").words == [["vmid", "101"]]
	not described("pct status 101 --verbose 2")
	not described("pct status --verbose=1 101")
}

test_site_adds_sub_commands_and_replaces_none if {
	more := {"binaries": {
		"zpool": {"scrub": entry, "status": entry},
		"mytool": f.site.binaries.mytool,
		"cat": {"/etc/shadow": entry},
	}}
	sites := object.union(f.site, more)
	scrub := grammar.describe(["zpool", "scrub"]) with data.site as sites
	[scrub.tier, scrub.own] == ["red", true]
	status := grammar.describe(["zpool", "status"]) with data.site as sites
	[status.tier, status.own] == ["green", false]
}

entry := {"group": "own", "tier": "red", "operands": [], "options": {}}

# What gnu_words relies on: a value that begins with a hyphen is a number, so no number takes a
# value.
test_no_number_is_an_option_that_takes_a_value if {
	every subs in data.core.grammar.commands {
		every e in subs {
			every o, kind in object.get(e, "options", {}) {
				not takes_value(o, kind)
			}
		}
	}
}

takes_value(o, kind) if {
	regex.match(`^-[0-9]$`, o)
	not kind in {"flag", "flag*"}
}

test_every_gnu_entry_says_where_it_is_from if {
	every subs in data.core.grammar.commands {
		every e in subs { has_source(e) }
	}
}

has_source(e) if not e.gnu

has_source(e) if regex.match(`^[a-z0-9_-]+\([1-8]\)`, e.source)
