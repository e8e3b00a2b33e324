# METADATA
# scope: package
# description: >-
#   The site sets a tier for the tool, which turns it on. Core lists the host's own tools.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.known

import data.caponier.core.host
import data.caponier.core.tier

asked := {"call", "operation", "visible"}

order := 3

ok if {
	input.kind != "host"
	data.site.tiers[tier.key]
}

ok if {
	input.kind == "host"
	host.tools[input.tool.name]
}

what := sprintf("%s has no tier, so it is switched off", [tier.key])

rule := "tiers in the site's data"

works := "another tool; only the operator can switch this one on"

remedy := "In the site's data: tiers/KIND:NAME."
