# METADATA
# scope: package
# description: The risk class of a question, as a rank. Everything unknown is black.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.tier

import data.caponier.core.command
import data.caponier.core.files
import data.caponier.core.guests
import data.caponier.core.host
import data.caponier.core.tables

ranks := {"green": 1, "yellow": 2, "red": 3, "black": 4}

names := {1: "green", 2: "yellow", 3: "red", 4: "black"}

# The rank of the question, and its name. A site raises for guests only what is above green.
rank := max([own, guests.raised]) if {
	tables.of.guests.raises
	own > 1
} else := own

# own is the rank without the raise for guests.
default own := 4

own := max({base} | command.call_ranks) if {
	input.schema == "caponier.call/1"
	input.commands != []
} else := base if {
	input.schema == "caponier.call/1"
}

own := operation if input.schema == "caponier.operation/1"

own := tool if input.schema == "caponier.visible/1"

# A plan runs nothing. Its call and its steps have the tiers that were decided.
own := max({1} | {ranks[s.tier] | some s in input.steps; s.allowed}) if {
	input.schema == "caponier.plan/1"
}

name := ["", "green", "yellow", "red", "black"][rank]

default tool := 4

tool := ranks[data.site.tiers[key]] if input.kind != "host"

tool := ranks[host.tools[input.tool.name].tier] if input.kind == "host"

key := concat(":", [input.kind, input.tool.name])

# A red tool that the site relaxes for some guests is yellow only for these.
base := base_of(input.targets.vmids)

base_of(vmids) := 2 if {
	tool == 3
	input.kind == "tool"
	input.tool.name in data.site.relaxed.tools
	count(vmids) > 0
	every id in vmids { id in data.site.relaxed.vmids }
} else := tool

# The rank of an operation's call without the raise for guests. It limits the operations too: a call
# that is red because of a tag must not do more than a yellow call may.
parent := max({base_of(input.parent.targets.vmids)} | command.parent_ranks)

default operation := 4

operation := max(command.operation_ranks) if {
	input.command != null
} else := files.rank if {
	input.file != null
} else := http_rank if {
	input.http != null
} else := blob_rank if {
	input.blob != null
} else := 1 if {
	input.ask != null
} else := 1 if {
	input.record != null
} else := 1 if {
	input.listing != null
}

# A copy in the workspace is a download.
blob_rank := 2 if {
	input.blob.action == "get"
} else := 1 if {
	input.blob.action in {"read", "write"}
}

http_rank := 1 if {
	input.http.method in {"GET", "HEAD"}
} else := 2
