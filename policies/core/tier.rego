# METADATA
# scope: package
# description: The risk class of a question, as a rank. What is not known is black.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.tier

import data.caponier.core.command
import data.caponier.core.files
import data.caponier.core.host

ranks := {"green": 1, "yellow": 2, "red": 3, "black": 4}

names := {1: "green", 2: "yellow", 3: "red", 4: "black"}

# The rank of the question, and its name.
default rank := 4

rank := max({base} | command.call_ranks) if {
	input.schema == "caponier.call/1"
	input.commands != []
} else := base if {
	input.schema == "caponier.call/1"
}

rank := operation if input.schema == "caponier.operation/1"

rank := tool if input.schema == "caponier.visible/1"

# A plan runs nothing. Its call has the tier that was decided, and its steps have theirs.
rank := max({1} | {ranks[s.tier] | some s in input.steps; s.allowed}) if {
	input.schema == "caponier.plan/1"
}

name := ["", "green", "yellow", "red", "black"][rank]

default tool := 4

tool := ranks[data.site.tiers[key]] if input.kind != "host"

tool := ranks[host.tools[input.tool.name].tier] if input.kind == "host"

key := concat(":", [input.kind, input.tool.name])

# A red tool that the site relaxes for some guests is yellow for exactly these.
base := 2 if {
	tool == 3
	input.kind == "tool"
	input.tool.name in data.site.relaxed.tools
	count(input.targets.vmids) > 0
	every id in input.targets.vmids { id in data.site.relaxed.vmids }
} else := tool

default operation := 4

operation := max(command.operation_ranks) if input.command != null

operation := files.rank if input.file != null

operation := http_rank if input.http != null

operation := blob_rank if input.blob != null

operation := 1 if {
	input.ask != null
} else := 1 if {
	input.record != null
}

operation := 1 if input.listing != null

# A copy in the workspace is a download.
blob_rank := 2 if {
	input.blob.action == "get"
} else := 1 if {
	input.blob.action in {"read", "write"}
}

http_rank := 1 if {
	input.http.method in {"GET", "HEAD"}
} else := 2
