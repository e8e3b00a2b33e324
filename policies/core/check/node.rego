# METADATA
# scope: package
# description: >-
#   Every named node is known here. Proxmox would look up an unknown name in DNS and connect to it.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.node

import data.caponier.core.command
import data.caponier.core.inventory
import data.caponier.core.roles
import data.caponier.core.say

asked := {"call", "operation"}

order := 11

after := {"identity", "grant", "known"}

ok if input.commands == []

ok if strangers == set()

strangers contains n if {
	some n in command.call_nodes
	not n in {x.name | some x in input.nodes}
	not listed(n)
}

# The node that the command runs on must know the named node: it is the same node, or one of its
# cluster.
strangers contains n if {
	some n in command.operation_nodes
	n != input.target.node
	not n in {x.name | some x in input.nodes; x.cluster == input.target.cluster; x.cluster != ""}
	not listed(n)
}

# A separate rule, because "not n in data.site.cluster_nodes" is undefined if the site has no such
# list, and would then allow every name.
listed(n) if n in data.site.cluster_nodes

# One role that grants the tool lists all named nodes.
reached if {
	some name in roles.granting
	roles.reaches(data.site.roles[name])
}

what := sprintf("node %s is not known here", [say.some_of(strangers, 3)]) if {
	count(strangers) > 0
} else := sprintf("node %s is out of reach of your roles", [say.some_of(far, 3)])

far := {n |
	some n in inventory.named
	not n in usable
}

usable contains n.name if {
	some n in input.nodes
	within_reach(n.name)
	not data.site.protected.nodes[n.name]
}

within_reach(n) if {
	some name in roles.granting
	some reached in data.site.roles[name].nodes
	reached in {"*", n}
}

rule := "cluster_nodes in the site's data, and the inventory" if count(strangers) > 0

rule := concat(", ", [sprintf("roles/%s/nodes", [r]) | some r in roles.granting]) if {
	count(strangers) == 0
}

works := sprintf("nodes that you may use: %s", [say.some_of(usable, 8)])

remedy := "In the site's data: roles/NAME/nodes; for a node outside the inventory, cluster_nodes."
