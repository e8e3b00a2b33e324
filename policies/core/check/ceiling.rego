# METADATA
# scope: package
# description: One role that grants the tool goes as high as the question's tier.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.ceiling

import data.caponier.core.roles
import data.caponier.core.tier

call_ok if reached(tier.call)

operation_ok if reached(tier.operation)

visible_ok if reached(tier.tool)

reached(rank) if {
	some name in roles.granting
	rank <= tier.ranks[data.site.roles[name].ceiling]
}

# Black is the tier check's to refuse.
reached(4)

why := tier.name(tier.call) if input.schema == "caponier.call/1"

why := tier.name(tier.operation) if input.schema == "caponier.operation/1"
