# METADATA
# scope: package
# description: >-
#   A red call has an approval that the site accepts. The host binds the approval to the call and
#   its arguments.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.confirmation

import data.caponier.core.approval
import data.caponier.core.host
import data.caponier.core.tables
import data.caponier.core.tier

asked := {"call"}

order := 50

# A person is not asked to approve a call that is refused anyway.
after := {id | some id in tables.of.required.call} | {"ceiling"}

ok if tier.rank < 3

# Nothing above green is executed, because a person sees the plan first.
ok if {
	tier.rank == 3
	input.planning == true
}

# The host removes its own snapshots according to the site's snapshot/keep and snapshot/keep_days.
ok if host.granted

ok if {
	tier.rank == 3
	input.confirmation.state == "approved"
	is_number(approval.needed.approvers)
	count(approval.persons) >= max([1, approval.needed.approvers])
}

ok if {
	tier.rank == 3
	input.confirmation.state == "argument"
	data.site.approval.argument == true
	not approval.special
}

what := sprintf("%s needs %d approvals%s, and has %d that the site accepts", [
	input.tool.name, approval.needed.approvers, asked_for, count(approval.persons),
]) if {
	approval.special
	input.confirmation.state == "approved"
} else := sprintf("%s is red, and its approval (%v by %v on %v) is not one that the site accepts", [
	input.tool.name, input.confirmation.state, input.confirmation.by, input.confirmation.channel,
]) if {
	not input.confirmation.channel in {"", null}
} else := sprintf("the request to approve %s expired before a person answered", [
	input.tool.name,
]) if {
	input.confirmation.state == "expired"
} else := sprintf("%s is red here and needs a person's approval", [input.tool.name])

asked_for := concat("", [x |
	some [has, x] in [
		[approval.needed.ticket != "", sprintf(", each with a ticket like %s", [
			approval.needed.ticket,
		])],
		[approval.needed.reason == true, ", each with a reason"],
	]
	has
])

rule := sprintf("tiers/%s, approval/channels, approval/approvers%s", [tier.key, needs_too])

needs_too := ", approval/needs" if {
	approval.special
} else := ""

works := "ask for approval, then make the same call again" if approval.possible

works := "nothing: the site has no way to approve" if not approval.possible

remedy := concat("", [
	"A person's approval of exactly this call, on one of approval/channels; approval/argument ",
	"decides whether the tool's own argument is enough.",
])
