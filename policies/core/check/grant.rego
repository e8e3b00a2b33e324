# METADATA
# scope: package
# description: One role of the principal grants the tool, with all imports that the tool declares.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.grant

import data.caponier.core.roles
import data.caponier.core.tables
import data.caponier.core.tier

asked := {"call", "operation", "visible"}

order := 4

# If the principal has no roles, or the tool is off, the refusal says only that.
after := {"identity", "known"}

ok if roles.granting != set()

what := concat("; ", lacks)

lacks contains sprintf("role %s does not list %s under tools", [name, tier.key]) if {
	some name in roles.held
	not name in lists
}

lacks contains sprintf("role %s lacks the import %s", [name, needed]) if {
	some name in roles.held
	name in lists
	some needed in input.tool.imports
	not needed in data.site.roles[name].imports
}

lists := tables.of.granting[tier.key] if {
	tables.of.granting[tier.key]
} else := set()

rule := concat(", ", [sprintf("roles/%s", [name]) | some name in roles.held])

works := "another tool; only the operator can grant this one"

remedy := concat("", [
	"In the site's data: a role of this principal whose tools and imports hold all that the tool ",
	"declares. Tools are named as tool:NAME, resource:NAME or prompt:NAME.",
])
