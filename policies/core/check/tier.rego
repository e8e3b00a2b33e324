# METADATA
# scope: package
# description: >-
#   The tier is not black, and the tier of an operation is not above its call's. If a tool becomes
#   black, its running calls stop.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.tier

import data.caponier.core.command
import data.caponier.core.guests
import data.caponier.core.tables
import data.caponier.core.tier

asked := {"call", "operation", "visible"}

order := 10

# A tool without a tier counts as black, and so does an unknown command. Other checks have better
# reasons for these.
after := {"known", "command", "imports"}

ok if {
	input.schema == "caponier.call/1"
	tier.rank < 4
}

ok if {
	input.schema == "caponier.operation/1"
	tier.tool < 4
	tier.rank < 4
	tier.rank <= tier.ranks[input.parent.tier]
	within_call
}

ok if {
	input.schema == "caponier.visible/1"
	tier.tool < 4
}

within_call if not tables.of.guests.raises

within_call if tier.own <= tier.parent

what := sprintf("%s is black", [tier.key]) if {
	tier.tool == 4
} else := guests.raising if {
	guests.raised == tier.rank
	tier.own < tier.rank
} else := sprintf("%s is black", [concat(", ", heavy)]) if {
	tier.rank == 4
} else := sprintf("%s is %s and %s is %s", [
	concat(", ", heavy), tier.name, input.tool.name, input.parent.tier,
])

# The reason for the tier: the services if there are any, else the commands.
heavy := services if {
	count(services) > 0
} else := {d.id | some d in heaviest} if {
	count(heaviest) > 0
} else := {input.op}

heaviest := [d | some d in described; d.rank == tier.rank]

services := {command.unit(s) |
	some d in heaviest
	d.group == "service"
	some [kind, s] in d.words
	kind in {"service", "pveservice"}
	weighty(command.unit(s))
}

weighty(unit) if {
	some name in data.core.grammar.services[tier.name]
	command.unit(name) == unit
}

weighty(unit) if {
	tier.rank == 3
	startswith(unit, "systemd-")
}

described := command.operation_described if input.schema == "caponier.operation/1"

described := command.call_described if input.schema == "caponier.call/1"

rule := sprintf("tiers/%s", [tier.key])

works := "nothing: what is black never runs" if tier.rank == 4

works := "nothing: what is black never runs" if tier.tool == 4

works := "a command of a lower tier; only the operator can raise the tool's tier" if {
	tier.rank < 4
	tier.tool < 4
}

remedy := "For an operation: a higher tier for its tool, in the site's data. Black has no remedy."
