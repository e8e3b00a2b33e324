# METADATA
# scope: package
# description: The site gives the tool a tier, and so switches it on.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.known

import data.caponier.core.tier

asked := {"call", "operation", "visible"}

order := 3

ok if data.site.tiers[tier.key]

what := sprintf("%s has no tier, so it is switched off", [tier.key])

rule := "tiers in the site's data"

works := "another tool; only the operator can switch this one on"

remedy := "In the site's data: tiers/KIND:NAME."
