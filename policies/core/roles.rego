# METADATA
# scope: package
# description: >-
#   The roles that the principal holds, and those that grant the question. One single role must
#   grant all of it.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.roles

import data.caponier.core.command
import data.caponier.core.host
import data.caponier.core.inventory
import data.caponier.core.scope
import data.caponier.core.tables
import data.caponier.core.tier

held contains name if some name in own

# A principal with at least one role also holds the roles of everybody. If a credential names roles,
# a listed principal has only these.
held contains name if {
	not host.claimed
	own != set()
	some name in data.site.everybody
	read_only(name)
	shared(name)
}

read_only(name) if data.site.roles[name].ceiling == "green"

shared(name) if kept(name)

shared(_) if not data.site.principals[input.principal.id]

# A listed principal has the roles of the site's data. A credential that names roles reduces them.
own contains name if {
	not host.claimed
	entry := data.site.principals[input.principal.id]
	input.principal.auth in entry.auth
	some name in entry.roles
	kept(name)
}

# A principal that is not listed, but that an identity provider authenticated, has those of its
# claimed roles that the site accepts from claims.
own contains name if {
	not host.claimed
	input.principal.auth == "oidc"
	not data.site.principals[input.principal.id]
	some name in input.principal.credential_roles
	name in data.site.claimable_roles
}

# The host holds one role, which belongs to core. A role with the same name in the site's data is a
# different role, which the host does not hold.
held contains "host" if host.itself

# A credential that could name roles but names none leaves no role.
kept(_) if {
	input.principal.narrowed == false
	input.principal.credential_roles == []
}

kept(name) if name in input.principal.credential_roles

# granting are the roles that grant the tool. The filters follow one another, so that no two roles
# can be combined into a right that neither has.
granting contains name if {
	not host.itself
	some name in held
	name in tables.of.granting[tier.key]
	imports := data.site.roles[name].imports
	input.tool.imports == [needed | some needed in input.tool.imports; needed in imports]
}

granting contains "host" if host.granted

# lists_commands is true if the principal may list the commands that it may run.
lists_commands if {
	not host.itself
	data.site.tiers["tool:list_allowed_commands"] == "green"
	some name in held
	name in tables.of.granting["tool:list_allowed_commands"]
	"list_commands" in data.site.roles[name].imports
}

# clear are the roles that grant the whole question.
clear contains name if {
	some name in fit
	scope.open(name)
}

# fit are the roles that would grant it at some time.
fit contains name if {
	not host.itself
	some name in granting
	role := data.site.roles[name]
	tier.rank <= tier.ranks[role.ceiling]
	reaches(role)
	may_run_all(role.commands)
	scope.covers(name)
}

clear contains "host" if host.clear

reaches(role) if "*" in role.nodes

reaches(role) if {
	every n in inventory.named { n in role.nodes }
}

described := [] if {
	input.schema == "caponier.call/1"
	input.commands == []
}

described := command.call_described if {
	input.schema == "caponier.call/1"
	input.commands != []
}

described := command.operation_described if input.schema == "caponier.operation/1"

described := [] if input.schema == "caponier.visible/1"

may_run_all(granted) if "*" in granted

may_run_all(granted) if {
	every d in described { may_run(granted, d) }
}

may_run(granted, _) if "*" in granted

may_run(granted, d) if d.group in granted

may_run(granted, d) if d.id in granted
