# METADATA
# scope: package
# description: A red call has a confirmation that the site accepts. It belongs to the call, bound to its arguments by the host.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.confirmation

import data.caponier.core.tier

ok if tier.call < 3

ok if {
	tier.call == 3
	input.confirmation.state == "approved"
	input.confirmation.by != ""
}

ok if {
	tier.call == 3
	input.confirmation.state == "argument"
	data.site.approval.argument == true
}

why := input.confirmation.state
