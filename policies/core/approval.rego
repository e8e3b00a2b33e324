# METADATA
# scope: package
# description: Which approvals of red calls the site accepts.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.approval

# Where a person may approve: in a terminal, on the host's own page, in the caller's client. The
# last is the caller's own word, so a site has to ask for it.
default channels := []

channels := data.site.approval.channels

# Whose approval counts on the first two. Who may sign in there is for the host's configuration.
default approvers := []

approvers := data.site.approval.approvers

# possible says that somebody can approve.
possible if "client" in channels

possible if {
	count(channels) > 0
	count(approvers) > 0
}
