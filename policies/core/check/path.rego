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
	every p in input.targets.paths { listed(p) }
	every p in command.paths(command.call_described, "readpath") { files.readable(p) }
	count(command.paths(command.call_described, "stagepath")) == 0
	count(command.paths(command.call_described, "guestpath")) == 0
}

listed(p) if files.readable(p)

listed(p) if files.writable(p)

operation_ok if {
	every p in command.paths(command.operation_described, "readpath") { files.readable(p) }
	every p in command.paths(command.operation_described, "stagepath") { files.staged(p) }
	every p in command.paths(command.operation_described, "guestpath") { p in input.parent.targets.guest_paths }
}

why := concat(", ", {p | some p in input.targets.paths; not listed(p)} | {p | some p in command.paths(command.call_described, "readpath"); not files.readable(p)}) if {
	input.schema == "caponier.call/1"
}

why := concat(", ", (({p | some p in command.paths(command.operation_described, "readpath"); not files.readable(p)} | {p | some p in command.paths(command.operation_described, "stagepath"); not files.staged(p)}) | {p | some p in command.paths(command.operation_described, "guestpath"); not p in input.parent.targets.guest_paths})) if {
	input.schema == "caponier.operation/1"
}
