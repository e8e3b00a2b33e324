# METADATA
# scope: package
# description: >-
#   Names in a site's data that are neither in the lock nor in the inventory, because they are
#   misspelled or outdated, and aliases for which the site requires less than for the tool. The host
#   gives data.inventory when a policy is loaded: tools as KIND:NAME, aliases from KIND:NAME to
#   KIND:NAME, and nodes. The host leaves out what it does not know.
# schemas:
#   - data.site: schema.site
package caponier.core.names

import data.caponier.core.tier

# A misspelled node is neither protected nor granted, so the host refuses to load the data.
problems contains sprintf("%s/%s: there is no node %q", [place, name, name]) if {
	data.inventory.nodes
	some [place, name] in nodes
	not name in known_nodes
}

known_nodes contains "*"

known_nodes contains name if some name in data.inventory.nodes

known_nodes contains name if some name in data.site.cluster_nodes

nodes contains ["protected/nodes", name] if some name, _ in data.site.protected.nodes

nodes contains ["raised/nodes", name] if some name, _ in data.site.raised.nodes

nodes contains [sprintf("protected/services/%d/nodes", [i]), name] if {
	some i, entry in data.site.protected.services
	some name in entry.nodes
}

nodes contains [sprintf("roles/%s/nodes", [role]), name] if {
	some role, r in data.site.roles
	some name in r.nodes
}

# A misspelled tool can never be called. The host still loads the data, because it may name tools of
# plugins that are not in this lock.
warnings contains sprintf("tiers/%s: there is no %s %q", [key, kind, name]) if {
	data.inventory.tools
	some key, _ in data.site.tiers
	[kind, name] := split(key, ":")
	not key in data.inventory.tools
}

warnings contains sprintf("%s/%s: there is no tool %q", [place, name, name]) if {
	data.inventory.tools
	some [place, name] in tools
	not name in known_tools
}

known_tools := {n | some t in data.inventory.tools; some n in [t, split(t, ":")[1]]} | {"*"}

warnings contains sprintf("approval/needs/%s: there is no such tool", [key]) if {
	data.inventory.tools
	some key, _ in data.site.approval.needs
	key != "*"
	not key in data.inventory.tools
}

# A site must require the same for a tool and its aliases. Otherwise callers could use the alias.
problems contains problem if {
	some [place, key, wanted] in asked
	some other in same[key]
	other in data.inventory.tools
	data.site.tiers[other] != "black"
	not [place, other, wanted] in asked
	problem := sprintf("%s: is asked of %q, and not the same of %q, which does the same job", [
		place, key, other,
	])
}

same[key] contains other if some key, other in data.inventory.aliases

same[key] contains other if some other, key in data.inventory.aliases

same[key] contains other if {
	some key, first in data.inventory.aliases
	some other, second in data.inventory.aliases
	first == second
	key != other
}

asked contains ["snapshot/tools", key_of(name), true] if some name in data.site.snapshot.tools

asked contains ["undo/tools", key_of(name), true] if some name in data.site.undo.tools

asked contains ["plan_first/tools", key_of(name), true] if some name in data.site.plan_first.tools

asked contains ["approval/needs", key, needs] if {
	some key, _ in data.site.tiers
	needs := object.get(data.site.approval.needs, key, data.site.approval.needs["*"])
}

asked contains ["approval/needs", key, needs] if some key, needs in data.site.approval.needs

key_of(name) := concat(":", ["tool", name])

# Different tiers may be intended: a site may set another risk class for one of the two.
warnings contains problem if {
	some key, others in same
	some other in others
	tier.ranks[data.site.tiers[other]] < tier.ranks[data.site.tiers[key]]
	data.site.tiers[key] != "black"
	problem := sprintf("tiers/%s: is %s, and %s, which does the same job, is %s", [
		other, data.site.tiers[other], key, data.site.tiers[key],
	])
}

tools contains ["snapshot/tools", name] if some name in data.site.snapshot.tools

tools contains ["undo/tools", name] if some name in data.site.undo.tools

tools contains ["plan_first/tools", name] if some name in data.site.plan_first.tools

tools contains ["relaxed/tools", name] if some name in data.site.relaxed.tools

tools contains [sprintf("roles/%s/tools", [role]), name] if {
	some role, r in data.site.roles
	some name in r.tools
}
