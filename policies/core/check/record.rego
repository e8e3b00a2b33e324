# METADATA
# scope: package
# description: >-
#   Only the principal that a record concerns may read it. Only the principal that made a call may
#   undo it, while the state that the call left is unchanged.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.record

import data.caponier.core.roles

asked := {"operation"}

order := 19

# Each case applies only if the one before it does not.
ok if {
	input.record == null
} else if {
	input.record.action == "undo"
	input.phase == "lookup"
} else if {
	input.record.action == "undo"
	input.record.undo.owner == input.principal.id
	input.record.undo.bars == ""
} else if {
	input.record.action == "snapshots"
	input.record.all == false
} else if {
	input.record.action == "snapshots"
	some name in roles.granting # that the site lets see those from before everybody's calls
	name in data.site.snapshot.seers
}

what := "only the snapshots from before your own calls are shown to you" if {
	input.record.action == "snapshots"
} else := sprintf("the host has no record of a call %s of yours", [input.record.call]) if {
	# The same text as for a call that does not exist, so that a caller cannot learn of another
	# principal's call.
	input.record.undo.owner != input.principal.id
} else := input.record.undo.bars

rule := "snapshot/seers" if {
	input.record.action == "snapshots"
} else := "undo, and what the host kept of the call"

works := "the same call without all" if {
	input.record.action == "snapshots"
} else := "look at what is there, and make the calls that bring it where it should be"

remedy := concat("", [
	"For snapshots: one of the principal's roles under snapshot/seers. For an undo: nothing once ",
	"the call was made; undo in the site's data says what the host keeps of calls.",
])
