# METADATA
# scope: package
# description: >-
#   An operation runs only commands that its tool declares in the lock, or exactly the text that was
#   decided with its call.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.declared

import data.caponier.core.command
import data.caponier.core.say

asked := {"operation"}

order := 7

ok if {
	every d in command.operation_described { d.id in input.tool.commands }
}

# A caller's text was decided with the call. The operation must run exactly that text, with the same
# operators.
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

what := sprintf("%s runs %s, and declares %s", [
	input.tool.name, say.some_of(undeclared, 3),
	say.some_of([c | some c in input.tool.commands; is_string(c)], 5),
])

rule := "plugins.lock: commands of the tool"

works := "another tool; only the plugin's author can declare the command, for a review"

remedy := concat("", [
	"The tool's description must declare the command under commands (Hints.Commands), which is a ",
	"new lock entry to review; a text of the caller's is run as it was decided, whole.",
])
