# METADATA
# scope: package
# description: >-
#   The commands of a call or an operation, and the guests, nodes, services and paths that their
#   words name.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.command

import data.caponier.core.grammar
import data.caponier.core.quick
import data.caponier.core.tier

operation_described := [measured(c.argv) | some c in input.command.calls]

# The commands of a call for a node. Text for the inside of a guest is included only if the site
# decides it by the table.
call_described := [measured(c.argv) |
	some cmd in input.commands
	by_table(cmd)
	some c in cmd.calls
]

parent_described := [measured(c.argv) |
	some cmd in input.parent.commands
	not cmd.guest
	some c in cmd.calls
]

node_described := [measured(c.argv) |
	some cmd in input.commands
	not cmd.guest
	some c in cmd.calls
]

by_table(cmd) if not cmd.guest

by_table(_) if data.site.guest_commands == "table"

# measured adds the tier: the grammar's tier for the entry and for the services that it names,
# raised by the site. The site's raise does not apply to relaxed guests.
measured(argv) := d if {
	d := quick.of(argv)
} else := object.union(d, {"rank": max({base(d)} | raised(d))}) if {
	d := grammar.describe(argv)
	d.own == false
} else := object.union(d, {"rank": max({base(d)} | raised(d)), "words": words}) if {
	d := grammar.describe(argv)
	words := array.concat(d.words, [["own", w] | some w in argv])
}

base(d) := tier.ranks[d.tier] if {
	not d.group in {"service", "transfer"}
} else := max({tier.ranks[d.tier]} | service_ranks(d)) if {
	d.group == "service"
} else := tier.ranks[data.core.grammar.relaxed[d.id]] if {
	spared(d)
} else := tier.ranks[d.tier]

service_ranks(d) := ({tier.ranks[t] |
	some [kind, s] in d.words
	kind in {"service", "pveservice"}
	some t, names in weighty
	unit(s) in names
} | {3 |
	some [kind, s] in d.words
	kind in {"service", "pveservice"}
	startswith(unit(s), "systemd-")
}) | aliased_ranks

# The node's own names for the units of an operation count like the words.
aliased_ranks := {tier.ranks[t] |
	some s in input.target.services
	some t, names in weighty
	unit(s) in names
} | {3 |
	some s in input.target.services
	startswith(s, "systemd-")
}

weighty := {t: {unit(n) | some n in names} | some t, names in data.core.grammar.services}

# The site can raise a single entry, or a whole group.
raised(d) := set() if {
	not data.site.commands[d.id]
	not data.site.commands[d.group]
} else := set() if {
	spared(d)
} else := {tier.ranks[data.site.commands[key].tier] | some key in [d.id, d.group]}

spared(d) if {
	ids := {v | some ["vmid", v] in d.words}
	count(ids) > 0
	every id in ids { id in data.site.relaxed.vmids }
}

operation_ranks := {d.rank | some d in operation_described}

call_ranks := {d.rank | some d in call_described} | {2 | some cmd in input.commands; cmd.guest}

parent_ranks := {measured(c.argv).rank |
	some cmd in input.parent.commands
	by_table(cmd)
	some c in cmd.calls
} | {2 | some cmd in input.parent.commands; cmd.guest}

# The words of an operation and of a call's node commands by kind, as pairs.
operation_words := {pair | some d in operation_described; some pair in d.words}

call_words := {pair | some d in node_described; some pair in d.words}

parent_words := {pair | some d in parent_described; some pair in d.words}

call_nodes := nodes(call_words)

operation_nodes := nodes(operation_words)

vmids(words) := {v | some ["vmid", v] in words}

nodes(words) := {n | some ["node", n] in words}

services(words) := {unit(s) | some [kind, s] in words; kind in {"unit", "service", "pveservice"}}

paths(words, kind) := {p | some [k, p] in words; k == kind}

# unit is the name by which units are compared, with its suffix, and without aliases.
unit(s) := object.get(data.core.grammar.aliases, suffixed(s), suffixed(s))

suffixed(s) := s if {
	regex.match(`\.(service|socket|target|timer|mount|automount|device|swap|path|slice|scope)$`, s)
} else := concat("", [s, ".service"])

# Mentions include more than operands: a guest's number in a task id, a unit, a volume, a path or
# the name of a device; a node's name in a task id or a path; and both in any word of a program that
# only the site describes.
mentioned_vmids(words) := (vmids(words) | {v |
	some [kind, w] in words
	kind in {
		"unit", "service", "volid", "dataset", "readpath", "device", "link", "own", "place",
		"blockdev", "zname", "lvmname", "unitglob", "ident", "process",
	}
	some v in numbers(w)
}) | {v |
	some ["upid", w] in words
	some run in regex.find_n(`[0-9]+`, split(w, ":")[6], -1) # its id; hex numbers stand before it
	v := trim_left(run, "0")
	regex.match(`^[0-9]{3,9}$`, v)
}

mentioned_nodes(words) := (nodes(words) | {n |
	some [kind, w] in words
	kind in {"upid", "readpath", "place"}
	some n in regex.split("[:/]", w)
}) | {n |
	some ["own", w] in words
	some n in regex.split("[^0-9A-Za-z-]", w)
}

# What else a word of a program may name that only the site describes: hosts, addresses and
# services, as a whole or after "@" or "=".
own_names(words) := {n |
	some ["own", w] in words
	some n in regex.split("[^0-9A-Za-z_.:-]", lower(w))
}

mentioned_services(words) := services(words) | {unit(n) | some n in own_names(words)}

# numbers are all runs of digits in a word that could be a guest's number, also between letters, as
# in vm102 and veth102i0.
numbers(w) := {v |
	pieces := regex.replace(w, "[^0-9A-Za-z]", "\n")
	form := "(?m)^[A-Za-z]*([1-9][0-9]{2,8})([ip][0-9]{1,3})?$"
	some [_, v, _] in regex.find_all_string_submatch_n(form, pieces, -1)
}
