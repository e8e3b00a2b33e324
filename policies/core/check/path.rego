# METADATA
# scope: package
# description: The site, the call or its stage allow each path of a command or a call.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.path

import data.caponier.core.command
import data.caponier.core.files
import data.caponier.core.say

asked := {"call", "operation"}

order := 15

ok if {
	input.targets.paths == []
	input.commands == []
}

ok if {
	input.schema == "caponier.call/1"
	is_array(input.targets.paths)
	count(faults) == 0
}

ok if {
	input.schema == "caponier.operation/1"
	count(faults) == 0
}

faults contains p if {
	some p in input.targets.paths
	not listed(p)
}

listed(p) if files.readable(p)

listed(p) if files.writable(p)

# A call names its own paths for a guest and has no stage yet.
faults contains p if {
	some [kind, p] in command.call_words
	kind in {"readpath", "stagepath", "guestpath"}
	not commanded(kind, p)
}

faults contains p if {
	some [kind, p] in command.operation_words
	kind in {"readpath", "stagepath", "guestpath"}
	not commanded(kind, p)
	not of_call(kind, p)
}

commanded("readpath", p) if files.commanded(p)

of_call("stagepath", p) if files.staged(p)

of_call("guestpath", p) if p in input.parent.targets.guest_paths

what := sprintf("path %s is outside what the call and the site allow", [say.some_of(faults, 3)])

rule := "files/read, files/write"

works := sprintf("in commands, these and what lies directly in them: %s", [say.some_of(read, 6)])

read := {p | some p in data.site.files.read}

remedy := concat("", [
	"In the site's data: files/read or files/write; for staged and guest paths, a call that names ",
	"them.",
])
