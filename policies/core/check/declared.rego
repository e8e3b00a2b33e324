# METADATA
# scope: package
# description: An operation runs only commands that its tool declares, as they were reviewed and locked, or the very text that its call was decided with.
# schemas:
#   - input: schema.input
package caponier.core.check.declared

import data.caponier.core.command

ok if {
	every d in command.operation_described { d.id in input.tool.commands }
}

# A caller's own text was decided with the call, whatever is in it. What is run is that very text: all of it, and joined as it was.
ok if {
	"*" in input.tool.commands
	some cmd in input.parent.commands
	cmd.guest == false
	cmd.text == input.command.text
	cmd.text != ""
}

undeclared contains d.id if {
	some d in command.operation_described
	not d.id in input.tool.commands
}

why := sprintf("%s; %s declares %s", [concat(", ", undeclared), input.tool.name, concat(", ", [c | some c in input.tool.commands; is_string(c)])])
