# METADATA
# scope: package
# description: Nothing is black, nothing is above its role's ceiling, and no operation is above its call.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.tier

import data.caponier.core.roles
import data.caponier.core.tier

call_ok if {
	tier.call < 4
	count(roles.call_tier) > 0
}

operation_ok if {
	tier.operation < 4
	tier.operation <= tier.ranks[input.parent.tier]
	count(roles.operation_tier) > 0
}

visible_ok if {
	tier.tool < 4
	count(roles.with_tier(roles.granting, tier.tool)) > 0
}

why := tier.name(tier.call) if input.schema == "caponier.call/1"

why := sprintf("%s in a %s call", [tier.name(tier.operation), input.parent.tier]) if input.schema == "caponier.operation/1"

why := tier.name(tier.tool) if input.schema == "caponier.visible/1"
