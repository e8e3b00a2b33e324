# METADATA
# scope: package
# description: The tool declares the operation, and a running call of the same tool asks for it.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.imports

import data.caponier.core.operations.table

asked := {"operation"}

order := 6

ok if {
	input.op in input.tool.imports
	input.parent.tool == input.tool.name
	is_string(input.parent.id)
	op := table[input.op]
	given == [op.part]
	somewhere(op)
	action(op)
}

# The operation has one of these parts, and the others are null. None may be missing.
given := [part | some part, false in empty]

empty := {
	"command": is_null(input.command), "file": is_null(input.file), "http": is_null(input.http),
	"blob": is_null(input.blob), "ask": is_null(input.ask), "record": is_null(input.record),
	"listing": is_null(input.listing),
}

# The operation names a node if and only if it runs on one. discard removes something on a node or
# in the workspace.
somewhere(op) if {
	op.node
	input.target != null
}

somewhere(op) if {
	not op.node
	input.target == null
}

somewhere(_) if input.op == "discard"

action(op) if op.action == ""

action(op) if input.file.action == op.action

what := sprintf("%s is not an operation that %s declares, or not asked for as its call allows", [
	input.op, input.tool.name,
])

rule := "plugins.lock: imports of the tool"

works := "another tool; only the plugin's author can change this one"

remedy := "The tool must declare the operation, which is a new lock entry to review."
