# METADATA
# scope: package
# description: Every command is described by the grammar in every word, granted to the role, and what it runs inside a guest was decided with the call.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.command

import data.caponier.core.check.guest
import data.caponier.core.command
import data.caponier.core.complaint
import data.caponier.core.grammar
import data.caponier.core.roles

call_ok if {
	every cmd in input.commands { text_ok(cmd) }
	count(roles.call_commands) > 0
}

text_ok(cmd) if {
	cmd.guest == true
	data.site.guest_commands == "any"
}

text_ok(cmd) if {
	cmd.guest == true
	data.site.guest_commands == "table"
	known(cmd)
}

text_ok(cmd) if {
	cmd.guest == false
	known(cmd)
	every c in cmd.calls { not grammar.describe(c.argv).inside }
}

known(cmd) if {
	cmd.parsed == true
	count(cmd.calls) > 0
	every f in cmd.features { f in data.site.shell_features }
	every c in cmd.calls {
		c.static == true
		command.measured(c.argv)
	}
}

operation_ok if input.command == null

operation_ok if {
	known(input.command)
	input.command.stdin.bytes == 0
	every d in command.operation_described { guest.ok(d) }
	count(roles.operation_commands) > 0
}

why := concat("; ", {c |
	some cmd in array.concat(object.get(input, "commands", []), [input.command])
	some c in complaints(cmd)
})

complaints(cmd) := {sprintf("it was not understood: %s", [cmd.error])} if {
	cmd.parsed == false
} else := {m |
	some c in cmd.calls
	m := complaint.about(c)
} | {sprintf("the shell feature %s is not granted", [f]) |
	some f in cmd.features
	not f in data.site.shell_features
}
