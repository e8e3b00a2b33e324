# METADATA
# scope: package
# description: >-
#   One single role grants the tool, the nodes, the tier, the commands, and everything else that it
#   restricts, at this time. Roles are never combined.
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

# What is missing, if no role that grants the tool grants it.
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

blames contains "scope" if {
	count(roles.granting) > 0
	not check.scope.reached
}

# Roles that grant all of it at another time.
blames contains "hours" if count(roles.fit) > 0

what := concat(" ", [
	"no single role grants tool, node, tier, commands and what is named together,",
	"at this time",
])

rule := concat(", ", [sprintf("roles/%s", [name]) | some name in roles.granting])

works := "a call that one of these roles covers alone"

remedy := "In the site's data: one role that has all of this and is open at this time."
