# METADATA
# scope: package
# description: >-
#   The command grammar in a form for people - every entry with its words and its tier on this site
#   - and the entries that a caller may run.
# schemas:
#   - data.site: schema.site
package caponier.core.listing

import data.caponier.core.approval
import data.caponier.core.complaint
import data.caponier.core.decide
import data.caponier.core.lint
import data.caponier.core.roles
import data.caponier.core.say
import data.caponier.core.scope
import data.caponier.core.tables
import data.caponier.core.tier

commands contains shown(id, e, false) if some id, e in lint.entries

commands contains shown(concat(" ", [w | some w in [binary, sub]; w != ""]), e, true) if {
	some binary, subs in data.site.binaries
	some sub, e in subs
}

shown(id, e, own) := {
	"name": id, "group": e.group, "tier": name_of(rank(id, e)), "site": own,
	"source": object.get(e, "source", ""), "operands": [complaint.kind(k) | some k in e.operands],
	"options": {o: value(k) | some o, k in e.options}, "required": object.get(e, "required", []),
}

rank(id, e) := rank_in(id, e, e.group)

rank_in(id, e, group) := max({tier.ranks[e.tier]} | {tier.ranks[data.site.commands[k].tier] |
	some k in {id, group}
})

name_of(n) := [t | some t, r in tier.ranks; r == n][0]

value(k) := "" if {
	k in {"flag", "flag*"}
} else := complaint.kind(k)

# runs are the entries that a text for a node can run, with the group and the rank in which they are
# granted. Entries that run inside a guest are refused there, and so are entries with a path that
# only a running call can have. A program that reads files or its input has a separate group for its
# input.
runs := [{"group": g, "rank": r, "piped": piped, "ids": ids} |
	some [g, r, piped], ids in classes
]

classes[[group, r, piped]] contains id if some [id, group, r, piped] in runnable

runnable contains [id, group, rank_in(id, e, group), group != e.group] if {
	some id, e in object.union(lint.entries, lint.owned)
	object.get(e, "guest", false) == false
	not staged(e)
	some group in {e.group, object.get(e, "bare", e.group)}
}

staged(e) if {
	some kind in e.operands
	kind in {"stagepath", "guestpath"}
}

# allowed are the commands named by input.word that the caller may run. Each of input.questions is a
# call of a tool that takes command text, on one node, as this caller would make it, without the
# text.
allowed := {
	"tools": [{"tool": t, "nodes": sort(nodes)} | some t, nodes in reached],
	"programs": [counted(p) | some p in sort(programs)],
	"commands": [told(key) | some key in first],
	"more_commands": count(rest) - count(first), "more_nodes": input.more_nodes,
}

# doors are the ways through the checks that do not depend on the text: with this tool, on this
# node, a command that makes the call of this rank, granted by these roles. There is no way for a
# red call if nobody can approve it.
doors contains {"tool": q.tool.name, "node": n, "least": least, "rank": r, "roles": granting} if {
	some q in input.questions
	some n in q.targets.nodes
	least := tier.base with input as q
	some r in [1, 2, 3]
	r >= least
	possible(r)
	unmet := decide.failed("call") with input as q with data.caponier.core.tier.rank as r
	unmet - {"target", "confirmation"} == set()
	granting := roles.clear with input as q with data.caponier.core.tier.rank as r
}

possible(r) if r < 3

possible(3) if approval.possible

possible(3) if data.site.approval.argument == true

# ways are the doors grouped by node, so that nodes with the same doors are examined once.
ways[[d.tool, d.least, d.rank, d.roles]] contains d.node if some d in doors

# found are the commands that a way allows.
found contains {"tool": tool, "rank": r, "nodes": nodes, "piped": class.piped, "ids": ids} if {
	some [tool, least, r, granting], nodes in ways
	some class in tables.runs
	r == max({least, class.rank})
	ids := granted(granting, class) & chosen
	count(ids) > 0
}

granted(granting, class) := {id | some id in class.ids} if {
	some name in granting
	roles.may_run(data.site.roles[name].commands, {"id": "", "group": class.group})
} else := {id |
	some id in class.ids
	some name in granting
	roles.may_run(data.site.roles[name].commands, {"id": id, "group": class.group})
}

known := {id | some class in tables.runs; some id in class.ids}

# chosen are the commands of the program or the sub-command, or otherwise those that contain the
# word.
chosen := known if {
	input.word == ""
} else := exact if {
	exact := {id | some id in known; named(id)}
	count(exact) > 0
} else := {id | some id in known; contains(id, input.word)}

named(id) if id == input.word

named(id) if startswith(id, concat("", [input.word, " "]))

reached[row.tool] contains n if {
	some row in found
	some n in row.nodes
}

# A command has the lowest of its tiers for the caller.
in_tier[r] := union({row.ids | some row in found; row.rank == r}) if some r in [1, 2, 3]

lowest := {
	"green": in_tier[1], "yellow": in_tier[2] - in_tier[1],
	"red": (in_tier[3] - in_tier[2]) - in_tier[1],
}

counts[split(id, " ")[0]][name] contains id if {
	input.word == ""
	some name, ids in lowest
	some id in ids
}

programs := {p | some p, _ in counts}

counted(p) := {
	"program": p, "green": count(object.get(counts[p], "green", [])),
	"yellow": count(object.get(counts[p], "yellow", [])),
	"red": count(object.get(counts[p], "red", [])),
}

# merged has one key for the tools that run a command on the same nodes in the same tier.
merged[[id, row.rank, sort(row.nodes), row.piped]] contains row.tool if {
	input.word != ""
	some row in found
	some id in row.ids
	not covered(id, row)
}

# covered is true if a command that may run after a pipe may also run by itself.
covered(id, row) if {
	row.piped
	some other in found
	not other.piped
	id in other.ids
	object.remove(other, {"ids", "piped"}) == object.remove(row, {"ids", "piped"})
}

rest := sort([key | some key, _ in merged])

first := array.slice(rest, 0, 40)

told([id, r, nodes, piped]) := {
	"command": id, "takes": say.cut(complaint.takes(entries[id]), most), "tier": tier.names[r],
	"approval": asked(r), "tools": sort(merged[[id, r, nodes, piped]]), "nodes": nodes,
	"piped": piped,
}

entries := object.union(lint.entries, lint.owned)

# able are the commands of a call's tool that the call may run, for this caller and these targets.
# The operation decides their words.
able contains c if {
	some c in input.tool.commands
	c != "*"
	least(c) <= tier.own
	some name in roles.clear
	roles.may_run(data.site.roles[name].commands, {"id": c, "group": entries[c].group})
}

least(c) := tier.ranks[object.get(data.core.grammar.relaxed, c, entries[c].tier)] if {
	count(input.targets.vmids) > 0
	every id in input.targets.vmids { id in data.site.relaxed.vmids }
} else := rank(c, entries[c])

# held are the roles that grant the call at some time, each with what it lists; null for a key that
# it does not have. Whether its guests have the call's own is decided.
held contains {
	"role": name, "guests": listed(name, "guests"), "services": listed(name, "services"),
	"hosts": listed(name, "hosts"), "paths": listed(name, "paths"), "hours": listed(name, "hours"),
} if {
	some name in roles.fit
}

listed(name, key) := null if {
	key == "guests"
	count(input.targets.vmids) > 0
} else := [v | some v in scope.of(name)[key]] if {
	scope.of(name)[key]
} else := null

# asked is true if a person is asked before a call of this rank.
default asked(_) := false

asked(3) if not data.site.approval.argument == true

# If there are few entries, they are shown in full.
most := 4000 if {
	count(rest) <= 5
} else := 300
