# METADATA
# scope: package
# description: What the commands of a call and of an operation are, and which guests, nodes, services and paths their words name.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.command

import data.caponier.core.grammar
import data.caponier.core.tier

operation_described := [measured(c.argv) | some c in input.command.calls]

# Node commands of a call. Text for the inside of a guest is described only where the site decides it by the table.
call_described := [measured(c.argv) | some cmd in input.commands; by_table(cmd); some c in cmd.calls]

parent_described := [measured(c.argv) | some cmd in input.parent.commands; not cmd.guest; some c in cmd.calls]

node_described := [measured(c.argv) | some cmd in input.commands; not cmd.guest; some c in cmd.calls]

by_table(cmd) if not cmd.guest

by_table(_) if data.site.guest_commands == "table"

# measured adds the tier that the site makes of it: it can only raise the grammar's, and spares the guests that it relaxes.
measured(argv) := object.union(d, {"rank": max({tier.ranks[d.tier], raised(d)})}) if {
	d := grammar.describe(argv)
}

raised(d) := tier.ranks[data.site.commands[d.id].tier] if {
	not spared(d)
} else := 1

spared(d) if {
	ids := {v | some ["vmid", v] in d.words}
	count(ids) > 0
	every id in ids { id in data.site.relaxed.vmids }
}

operation_ranks := {d.rank | some d in operation_described}

call_ranks := {d.rank | some d in call_described} | {2 | some cmd in input.commands; cmd.guest}

call_nodes := nodes(node_described)

operation_nodes := nodes(operation_described)

vmids(described) := {v | some d in described; some ["vmid", v] in d.words}

nodes(described) := {n | some d in described; some ["node", n] in d.words}

services(described) := {unit(s) | some d in described; some [kind, s] in d.words; kind in {"unit", "pveservice"}}

paths(described, kind) := {p | some d in described; some [k, p] in d.words; k == kind}

unit(s) := s if {
	regex.match(`\.(service|socket|target|timer|mount|automount|device|swap|path|slice|scope)$`, s)
} else := concat("", [s, ".service"])

# Mentions are wider than operands: a guest's number in a task id, a volume or a path, a node's name in a task id or a path.
mentioned_vmids(described) := vmids(described) | {v |
	some d in described
	some [kind, w] in d.words
	kind in {"upid", "volid", "dataset", "readpath"}
	some v in numbers(w)
}

mentioned_nodes(described) := nodes(described) | {n |
	some d in described
	some [kind, w] in d.words
	kind in {"upid", "readpath"}
	some n in regex.split("[:/]", w)
}

# numbers gives every run of digits in a word that could be a guest's number.
numbers(w) := {v | some v in regex.split("[^0-9A-Za-z]", w); regex.match("^[1-9][0-9]{2,8}$", v)}
