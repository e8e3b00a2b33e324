# METADATA
# scope: package
# description: One role of the principal grants the tool with all the imports that the tool declares.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.grant

import data.caponier.core.roles

ok if count(roles.granting) > 0

# Each role of the principal, and what it lacks.
why := concat("; ", lacks) if count(roles.held) > 0

lacks contains sprintf("role %s does not list %s under tools", [name, input.tool.name]) if {
	some name in roles.held
	not roles.covers(data.site.roles[name].tools, input.tool.name)
}

lacks contains sprintf("role %s lacks the import %s", [name, needed]) if {
	some name in roles.held
	role := data.site.roles[name]
	roles.covers(role.tools, input.tool.name)
	some needed in input.tool.imports
	not needed in role.imports
}
