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
	input.confirmation.channel in channels
	may_confirm
}

ok if {
	tier.call == 3
	input.confirmation.state == "argument"
	data.site.approval.argument == true
}

# Where a person may say yes: in a terminal, on the host's own page, in the caller's client. The last is the caller's own word, so a site has to ask for it.
default channels := ["cli", "web"]

channels := data.site.approval.channels

# Whose yes counts on the first two. Who may sign in there at all is for the host's configuration.
default approvers := ["*"]

approvers := data.site.approval.approvers

may_confirm if "*" in approvers

may_confirm if input.confirmation.by in approvers

may_confirm if input.confirmation.channel == "client"

why := sprintf("%v by %v on %v", [input.confirmation.state, input.confirmation.by, input.confirmation.channel]) if {
	input.confirmation.channel != ""
} else := input.confirmation.state
