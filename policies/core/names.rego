# METADATA
# scope: package
# description: >-
#   Names in a site's data that neither the lock nor the inventory has: misspelt, or of something
#   that is gone. The host gives data.inventory when a policy is loaded: tools as KIND:NAME, and
#   nodes. What it does not know it leaves out.
# schemas:
#   - data.site: schema.site
package caponier.core.names

# A node that is misspelt is neither protected nor granted, so the host refuses to load the data.
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

# A tool that is misspelt can never be called. The data can decide all the same: it may name tools
# of plugins that are not in this lock.
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

tools contains ["snapshot/tools", name] if some name in data.site.snapshot.tools

tools contains ["undo/tools", name] if some name in data.site.undo.tools

tools contains ["plan_first/tools", name] if some name in data.site.plan_first.tools

tools contains ["relaxed/tools", name] if some name in data.site.relaxed.tools

tools contains [sprintf("roles/%s/tools", [role]), name] if {
	some role, r in data.site.roles
	some name in r.tools
}
