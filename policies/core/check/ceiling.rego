# METADATA
# scope: package
# description: >-
#   A part of check role - the ceiling of a role that grants the tool is not below the tier.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.ceiling

import data.caponier.core.roles
import data.caponier.core.tier

asked := set()

order := 12

after := {"identity", "grant", "known", "tier"}

reached if {
	some name in roles.granting
	tier.rank <= tier.ranks[data.site.roles[name].ceiling]
}

what := sprintf("this is %s, and your roles go up to %s", [tier.name, tier.names[highest]])

highest := max({tier.ranks[data.site.roles[name].ceiling] | some name in roles.granting})

rule := concat(", ", [sprintf("roles/%s/ceiling", [name]) | some name in roles.granting])

works := "a tool or command of a lower tier"

remedy := "In the site's data: roles/NAME/ceiling."
