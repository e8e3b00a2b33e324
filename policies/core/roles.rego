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
	some name in input.principal.credential_roles
	name in data.site.claimable_roles
}

unnarrowed(_) if input.principal.credential_roles == []

unnarrowed(name) if name in input.principal.credential_roles

# The filters follow one another, so that no two roles can be combined into a right that neither has.
granting contains name if {
	some name in held
	role := data.site.roles[name]
	covers(role.tools, input.tool.name)
	every needed in input.tool.imports { needed in role.imports }
}

# Clear roles grant the whole question.
call_clear contains name if {
	some name in granting
	role := data.site.roles[name]
	call_reaches(role)
	tier.call <= tier.ranks[role.ceiling]
	call_runs(role.commands)
}

operation_clear contains name if {
	some name in granting
	role := data.site.roles[name]
	operation_reaches(role)
	tier.operation <= tier.ranks[role.ceiling]
	operation_runs(role.commands)
}

call_reaches(role) if "*" in role.nodes

call_reaches(role) if reaches(role, {n | some n in input.targets.nodes} | command.call_nodes)

operation_reaches(role) if "*" in role.nodes

operation_reaches(role) if reaches(role, {input.target.node | input.target != null} | command.operation_nodes)

reaches(role, _) if "*" in role.nodes

reaches(role, names) if {
	every n in names { n in role.nodes }
}

call_runs(granted) if "*" in granted

call_runs(granted) if may_run_all(granted, command.call_described)

operation_runs(granted) if "*" in granted

operation_runs(granted) if may_run_all(granted, command.operation_described)

may_run_all(granted, _) if "*" in granted

may_run_all(granted, described) if {
	every d in described { may_run(granted, d) }
}

may_run(granted, _) if "*" in granted

may_run(granted, d) if d.group in granted

may_run(granted, d) if d.id in granted

covers(list, _) if "*" in list

covers(list, x) if x in list
