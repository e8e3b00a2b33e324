# METADATA
# scope: package
# description: Paths in commands and of calls lie where the site, the call or its stage allow.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.path

import data.caponier.core.command
import data.caponier.core.files

call_ok if {
	input.targets.paths == []
	input.commands == []
}

call_ok if {
	every p in input.targets.paths { listed(p) }
	every p in command.paths(command.call_words, "readpath") { files.commanded(p) }
	count(command.paths(command.call_words, "stagepath")) == 0
	count(command.paths(command.call_words, "guestpath")) == 0
}

listed(p) if files.readable(p)

listed(p) if files.writable(p)

operation_ok if count({k | some [k, _] in command.operation_words} & kinds) == 0

kinds := {"readpath", "stagepath", "guestpath"}

operation_ok if {
	every p in command.paths(command.operation_words, "readpath") { files.commanded(p) }
	every p in command.paths(command.operation_words, "stagepath") { files.staged(p) }
	every p in command.paths(command.operation_words, "guestpath") { p in input.parent.targets.guest_paths }
}

why := concat(", ", call_faults) if input.schema == "caponier.call/1"

why := concat(", ", operation_faults) if input.schema == "caponier.operation/1"

call_faults contains p if {
	some p in input.targets.paths
	not listed(p)
}

call_faults contains p if {
	some p in command.paths(command.call_words, "readpath")
	not files.commanded(p)
}

call_faults contains p if {
	some kind in {"stagepath", "guestpath"}
	some p in command.paths(command.call_words, kind)
}

operation_faults contains p if {
	some p in command.paths(command.operation_words, "readpath")
	not files.commanded(p)
}

operation_faults contains p if {
	some p in command.paths(command.operation_words, "stagepath")
	not files.staged(p)
}

operation_faults contains p if {
	some p in command.paths(command.operation_words, "guestpath")
	not p in input.parent.targets.guest_paths
}
