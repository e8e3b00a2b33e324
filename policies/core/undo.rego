# METADATA
# scope: package
# description: >-
#   Of which operations the host records what takes them back, and keeps what they replace, as the
#   site asks; and which calls are planned first.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.undo

import data.caponier.core.files
import data.caponier.core.host
import data.caponier.core.tier

# kept says whether it does, whether the operation may go on where it cannot, for how many days it
# keeps the record, and how many bytes of a file.
kept := {
	"record": true, "optional": data.site.undo.optional,
	"days": data.site.undo.keep_days, "max_bytes": data.site.undo.max_bytes,
} if {
	wanted
	changes
} else := {"record": false, "optional": false, "days": 0, "max_bytes": 0}

wanted if tier.rank >= tier.ranks[data.site.undo.tier]

wanted if input.tool.name in data.site.undo.tools

# What stays in the call's own stage goes with it. What undoes a call is not undone.
changes if {
	input.schema == "caponier.operation/1"
	tier.rank > 1
	not host.itself
	not "undo_steps" in input.tool.imports
	on_node
}

on_node if input.command != null

on_node if {
	input.file.action in {"write", "put", "remove"}
	not files.staged(input.file.path)
}

# planned_first says that a call is planned before it runs, with or without an approver.
default planned_first := false

planned_first if {
	plannable
	tier.rank >= tier.ranks[data.site.plan_first.tier]
}

planned_first if {
	plannable
	input.tool.name in data.site.plan_first.tools
}

plannable if {
	input.schema == "caponier.call/1"
	tier.rank > 1
	not host.itself
}
