# METADATA
# scope: package
# description: The nodes that a question names, and the other names of the same machines.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.inventory

import data.caponier.core.command

# named are the nodes that a role must reach.
named := {n | some n in input.targets.nodes} if {
	input.schema == "caponier.call/1"
	input.commands == []
}

named := {n | some n in input.targets.nodes} | command.call_nodes if {
	input.schema == "caponier.call/1"
	input.commands != []
}

named := {input.target.node | input.target != null} | command.operation_nodes if {
	input.schema == "caponier.operation/1"
}

named := {n | some n in input.targets.nodes} if input.schema == "caponier.visible/1"

named := {n | some n in input.targets.nodes} | {s.target.node | some s in input.steps} if {
	input.schema == "caponier.plan/1"
}

# also adds the other entries of the inventory that are the same machines.
also(names) := names | {a | some n in input.nodes; n.name in names; some a in n.aliases}
