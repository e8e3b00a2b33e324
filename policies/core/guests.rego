# METADATA
# scope: package
# description: >-
#   The guests that a question names, and the site's entries for guests by their tags, pools, names
#   and nodes, as the host found these in the cluster. Such facts can refuse and raise, but never
#   grant. A person who can write a tag cannot gain a right by it.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.guests

import data.caponier.core.command
import data.caponier.core.files
import data.caponier.core.say
import data.caponier.core.tables
import data.caponier.core.tier

ranks := {"green": 1, "yellow": 2, "red": 3, "black": 4}

# named are the guests that the question names in any way.
named contains id if some id in input.targets.vmids

named contains id if {
	words != set()
	some id in command.mentioned_vmids(words)
}

# A guest's number in a path, or in a unit such as pve-container@103, names that guest.
named contains id if {
	some text in texts
	some id in command.numbers(text)
}

# The words of commands by kind. A call's text for the inside of a guest is not among them.
words := command.operation_words if {
	input.schema == "caponier.operation/1"
} else := set() if {
	input.commands == []
} else := command.call_words if {
	input.schema == "caponier.call/1"
} else := set()

texts contains p if some p in input.targets.paths

texts contains s if some s in input.targets.services

texts contains p if {
	some p in [input.file.path, input.file.real_path]
	is_string(p)
	not files.staged(p)
}

# used tells how the site uses facts of guests: lists, if it uses the list of a cluster; raises, if
# it raises tiers by it; and configs, if it uses the guests' configurations. These values do not
# change while a policy is in force; see package derived.
default used := false

used if lists

used if configs

default lists := false

lists if {
	some key in ["tags", "pools", "names"]
	count(data.site.protected[key]) > 0
}

lists if raises

default configs := false

configs if is_object(data.site.protected.protection)

default raises := false

raises if {
	some key in ["tags", "pools", "names", "nodes"]
	count(data.site.raised[key]) > 0
}

# max_age_s is the maximum age of such facts.
default max_age_s := 30

max_age_s := data.site.guest_facts.max_age_s

# unknown are the named guests whose facts are missing, too old or incomplete.
unknown := {id |
	asked_for
	some id in named
	not known(id)
}

asked_for if tables.of.guests.lists

asked_for if configured

# configured is true if the guests' configurations count, which is above green.
configured if {
	tables.of.guests.configs
	tier.rank > 1
}

known(id) if {
	fact := input.guests[id]
	fact.age_s >= 0
	fact.age_s <= tables.of.guests.max_age_s
	fact.status != "unknown"
	settled(fact)
}

settled(_) if not configured

settled(fact) if fact.protection in {"on", "off"}

# A guest that does not exist is not protected.
settled(fact) if fact.kind == ""

# entries are the entries of a section of the site's data that match a guest: by a tag in any letter
# case, by its pool or a parent of the pool, by its whole name, or by its node.
entries(section, fact) := {["tags", tag, e] |
	some tag, e in section.tags
	some t in fact.tags
	lower(t) == tag
} | ({["pools", pool, e] |
	some pool, e in section.pools
	within(fact.pool, pool)
} | ({["names", pattern, e] |
	some pattern, e in section.names
	regex.match(sprintf("^(?:%s)$", [pattern]), fact.name)
} | {["nodes", fact.node, e] |
	e := section.nodes[fact.node]
}))

within(pool, pool)

within(pool, outer) if startswith(pool, concat("", [outer, "/"]))

# protecting are the entries of protected that match a named guest, with the guest.
protecting contains [id, kind, name, entry] if {
	some id in named
	some [kind, name, entry] in entries(data.site.protected, input.guests[id])
}

protecting contains [id, "protection", "on", data.site.protected.protection] if {
	configured
	some id in named
	input.guests[id].protection == "on"
}

# raised is the minimum rank of a question above green.
raised := max({0} | {ranks[entry.tier] |
	some id in named
	some [_, _, entry] in entries(data.site.raised, input.guests[id])
})

# raising are the guests that raise it, with the entries.
raising := concat("; ", [sprintf("guest %s is raised to %s by its %s %s", [
	label(id), entry.tier, trim_suffix(kind, "s"), say.cut(name, 60),
]) |
	some id in named
	some [kind, name, entry] in entries(data.site.raised, input.guests[id])
	ranks[entry.tier] == raised
])

# label is the number of a guest, and its name if it is known.
label(id) := sprintf("%s (%s)", [id, say.cut(input.guests[id].name, 40)]) if {
	input.guests[id].name != ""
} else := id
