# METADATA
# scope: package
# description: Every node that is named is known here, and one role that grants the tool reaches it. Proxmox itself would look an unknown name up in DNS and go there.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.node

import data.caponier.core.command
import data.caponier.core.roles

call_known if count(call_strangers) == 0

operation_known if count(operation_strangers) == 0

call_strangers contains n if {
	some n in command.call_nodes
	not n in {x.name | some x in input.nodes}
	not listed(n)
}

# In a rule of its own: "not n in data.site.cluster_nodes" would not hold where the site has no such list, and let every name pass.
listed(n) if n in data.site.cluster_nodes

# A node is known to the node that the command runs on: it is that one, or of its cluster.
operation_strangers contains n if {
	some n in command.operation_nodes
	n != input.target.node
	not n in {x.name | some x in input.nodes; x.cluster == input.target.cluster; x.cluster != ""}
	not listed(n)
}

why := concat(", ", call_strangers) if input.schema == "caponier.call/1"

why := concat(", ", operation_strangers) if input.schema == "caponier.operation/1"

call_ok if {
	call_known
	some name in roles.granting
	roles.call_reaches(data.site.roles[name])
}

visible_ok if {
	some name in roles.granting
	roles.reaches(data.site.roles[name], {n | some n in input.targets.nodes})
}

operation_ok if {
	operation_known
	some name in roles.granting
	roles.operation_reaches(data.site.roles[name])
}
