# METADATA
# scope: package
# description: >-
#   One role alone grants the tool, the nodes, the tier and the commands. Two roles are never added
#   together.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.role

import data.caponier.core.check
import data.caponier.core.roles

asked := {"call", "operation", "visible"}

order := 40

after := {"identity", "grant", "known", "tier"}

ok if roles.clear != set()

# What is missing, when no role that grants the tool has it.
blames contains "node" if {
	count(roles.granting) > 0
	not check.node.reached
}

blames contains "ceiling" if {
	count(roles.granting) > 0
	not check.ceiling.reached
}

blames contains "command" if {
	count(roles.granting) > 0
	not check.command.granted
}

what := "no single role grants tool, node, tier and commands together"

rule := concat(", ", [sprintf("roles/%s", [name]) | some name in roles.granting])

works := "a call that one of these roles covers alone"

remedy := "In the site's data: one role with the tool, the node, the ceiling and the command."
