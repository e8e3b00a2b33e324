# METADATA
# scope: package
# description: >-
#   Which guests a question names, and what the site says of guests by their tags, pools, names and
#   nodes, as the host found these in the cluster. Such facts can refuse and raise, and never
#   grant. The right to write a tag gives no power over what a site allows.
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

# named are the guests that the question names, however it names them.
named contains id if some id in input.targets.vmids

named contains id if {
	words != set()
	some id in command.mentioned_vmids(words)
}

# A guest's number in a path, or in a unit such as pve-container@103, is that guest.
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

# used says that the site says something of guests by what their cluster says of them: lists by what
# is in its list, raises that it raises tiers by it, and configs by what is in their configurations.
# None changes as long as a policy is in force: see package derived.
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

# max_age_s is how old such facts may be.
default max_age_s := 30

max_age_s := data.site.guest_facts.max_age_s

# unknown are the named guests of which such facts are not there, are too old, or are not all that
# there is.
unknown := {id |
	asked_for
	some id in named
	not known(id)
}

asked_for if tables.of.guests.lists

asked_for if configured

# configured says that the guests' configurations count: they do above green.
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

# A guest that is not there protects nothing.
settled(fact) if fact.kind == ""

# entries are those of a section of the site's data that a guest falls under: by a tag in any letter
# case, by its pool or one that holds that, by its whole name, by the node that it is on.
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

# protecting are the entries of protected that a named guest falls under, with the guest.
protecting contains [id, kind, name, entry] if {
	some id in named
	some [kind, name, entry] in entries(data.site.protected, input.guests[id])
}

protecting contains [id, "protection", "on", data.site.protected.protection] if {
	configured
	some id in named
	input.guests[id].protection == "on"
}

# raised is the rank that a question above green has at least.
raised := max({0} | {ranks[entry.tier] |
	some id in named
	some [_, _, entry] in entries(data.site.raised, input.guests[id])
})

# raising says which guests raise it, by what.
raising := concat("; ", [sprintf("guest %s is raised to %s by its %s %s", [
	label(id), entry.tier, trim_suffix(kind, "s"), say.cut(name, 60),
]) |
	some id in named
	some [kind, name, entry] in entries(data.site.raised, input.guests[id])
	ranks[entry.tier] == raised
])

# label is a guest by its number, and by its name where that is known.
label(id) := sprintf("%s (%s)", [id, say.cut(input.guests[id].name, 40)]) if {
	input.guests[id].name != ""
} else := id
