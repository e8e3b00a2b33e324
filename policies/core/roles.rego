# METADATA
# scope: package
# description: Which roles the principal holds, and which of them could grant this tool. A question must be granted by one role alone.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.roles

import data.caponier.core.command
import data.caponier.core.tier

# A listed principal has the roles of the site's data; a credential that names roles narrows them.
held contains name if {
	entry := data.site.principals[input.principal.id]
	input.principal.auth in entry.auth
	some name in entry.roles
	unnarrowed(name)
}

# An unlisted one that an identity provider vouches for has those of its claimed roles that the site accepts from claims.
held contains name if {
	input.principal.auth == "oidc"
	not data.site.principals[input.principal.id]
	some name in input.principal.roles
	name in data.site.claimable_roles
}

unnarrowed(_) if input.principal.roles == []

unnarrowed(name) if name in input.principal.roles

# The filters follow one another, so that no two roles can be combined into a right that neither has.
granting contains name if {
	some name in held
	role := data.site.roles[name]
	covers(role.tools, input.tool.name)
	every needed in input.tool.imports { needed in role.imports }
}

with_nodes(names) := {name |
	some name in granting
	every n in names { covers(data.site.roles[name].nodes, n) }
}

with_tier(candidates, rank) := {name |
	some name in candidates
	rank <= tier.ranks[data.site.roles[name].ceiling]
}

with_commands(candidates, described) := {name |
	some name in candidates
	every d in described { may_run(data.site.roles[name].commands, d) }
}

may_run(granted, d) if covers(granted, d.group)

may_run(granted, d) if d.id in granted

covers(list, _) if "*" in list

covers(list, x) if x in list

# What call and operation are measured by, in the order of the filters.
call_nodes := with_nodes({n | some n in input.targets.nodes} | command.call_nodes)

call_tier := with_tier(call_nodes, tier.call)

call_commands := with_commands(call_tier, command.call_described)

operation_nodes := with_nodes({input.target.node | input.target != null} | command.operation_nodes)

operation_tier := with_tier(operation_nodes, tier.operation)

operation_commands := with_commands(operation_tier, command.operation_described)
