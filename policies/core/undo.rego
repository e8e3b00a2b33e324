# METADATA
# scope: package
# description: >-
#   The operations for which the host records how to undo them, and keeps what they replace,
#   according to the site; and the calls that are planned first.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.undo

import data.caponier.core.files
import data.caponier.core.host
import data.caponier.core.tier

# kept tells whether the host records, whether the operation may continue without a record, for how
# many days the host keeps it, and how many bytes of a file.
kept := {
	"record": true, "optional": data.site.undo.optional,
	"days": data.site.undo.keep_days, "max_bytes": data.site.undo.max_bytes,
} if {
	wanted
	changes
} else := {"record": false, "optional": false, "days": 0, "max_bytes": 0}

wanted if tier.rank >= tier.ranks[data.site.undo.tier]

wanted if input.tool.name in data.site.undo.tools

# Files in the call's own stage are removed with it. An undo cannot be undone.
changes if {
	input.schema == "caponier.operation/1"
	tier.rank > 1
	not host.itself
	not "undo_steps" in input.tool.imports
	on_node
}

on_node if input.command != null

on_node if {
	input.file.action in files.changing
	not files.staged(input.file.path)
}

# planned_first is true if a call is planned before it runs, with or without an approver.
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
