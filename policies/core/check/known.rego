# METADATA
# scope: package
# description: The site gives the tool a tier, and so switches it on.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.known

import data.caponier.core.tier

ok if data.site.tiers[tier.key]

why := input.tool.name
