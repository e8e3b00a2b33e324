# METADATA
# scope: package
# description: The risk class of a tool, a call and an operation, as ranks. What is not known is black.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.tier

import data.caponier.core.command
import data.caponier.core.files

ranks := {"green": 1, "yellow": 2, "red": 3, "black": 4}

names := {1: "green", 2: "yellow", 3: "red", 4: "black"}

name(rank) := names[rank]

default tool := 4

tool := ranks[data.site.tiers[key]]

key := concat(":", [input.kind, input.tool.name])

# A call is as high as its tool and its commands; a tool that the site relaxes for some guests is yellow for exactly those.
call := max({base} | command.call_ranks) if {
	base := relaxed
} else := max({tool} | command.call_ranks)

relaxed := 2 if {
	tool == 3
	input.tool.name in data.site.relaxed.tools
	count(input.targets.vmids) > 0
	every id in input.targets.vmids { id in data.site.relaxed.vmids }
}

default operation := 4

operation := max(command.operation_ranks) if input.command != null

operation := files.rank if input.file != null

operation := http_rank if input.http != null

operation := blob_rank if input.blob != null

operation := 1 if input.ask != null

# A copy in the workspace is a download.
blob_rank := 2 if {
	input.blob.action == "get"
} else := 1 if {
	input.blob.action in {"read", "write"}
}

http_rank := 1 if {
	input.http.method in {"GET", "HEAD"}
} else := 2
