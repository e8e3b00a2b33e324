# METADATA
# scope: package
# description: >-
#   Names in a site's data that neither the lock nor the inventory has: misspelt, or of something
#   that is gone. The data can decide all the same. The host gives data.inventory when a policy is
#   loaded: tools as KIND:NAME, and nodes. What it does not know it leaves out.
# schemas:
#   - data.site: schema.site
package caponier.core.names

nodes := {n | some n in data.inventory.nodes} | {n | some n in data.site.cluster_nodes}

tools := {t | some t in data.inventory.tools}

tool_names := {split(t, ":")[1] | some t in tools}

node_known("*")

node_known(name) if name in nodes

tool_known("*")

tool_known(name) if name in (tools | tool_names)

warnings contains sprintf("tiers/%s: there is no %s %q", [key, kind, name]) if {
	data.inventory.tools
	some key, _ in data.site.tiers
	[kind, name] := split(key, ":")
	not key in tools
}

warnings contains sprintf("roles/%s/tools/%s: there is no tool %q", [role, name, name]) if {
	data.inventory.tools
	some role, r in data.site.roles
	some name in r.tools
	not tool_known(name)
}

warnings contains sprintf("relaxed/tools/%s: there is no tool %q", [name, name]) if {
	data.inventory.tools
	some name in data.site.relaxed.tools
	not tool_known(name)
}

warnings contains sprintf("protected/nodes/%s: there is no node %q", [name, name]) if {
	data.inventory.nodes
	some name, _ in data.site.protected.nodes
	not node_known(name)
}

warnings contains sprintf(
	"protected/services/%d/nodes/%s: there is no node %q",
	[i, name, name],
) if {
	data.inventory.nodes
	some i, entry in data.site.protected.services
	some name in entry.nodes
	not node_known(name)
}

warnings contains sprintf("roles/%s/nodes/%s: there is no node %q", [role, name, name]) if {
	data.inventory.nodes
	some role, r in data.site.roles
	some name in r.nodes
	not node_known(name)
}
