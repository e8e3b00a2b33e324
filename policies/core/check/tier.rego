# METADATA
# scope: package
# description: Nothing is black, and no operation is above its call.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.tier

import data.caponier.core.tier

call_ok if tier.call < 4

operation_ok if {
	tier.operation < 4
	tier.operation <= tier.ranks[input.parent.tier]
}

visible_ok if tier.tool < 4

why := tier.name(tier.call) if input.schema == "caponier.call/1"

why := sprintf("%s in a %s call", [tier.name(tier.operation), input.parent.tier]) if input.schema == "caponier.operation/1"

why := tier.name(tier.tool) if input.schema == "caponier.visible/1"
