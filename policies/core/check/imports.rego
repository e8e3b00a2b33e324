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
	given(op.part)
	count([value | some value in all; value == null]) == count(all) - 1
	somewhere(op)
	action(op)
}

# The operation has one of these parts, and the others are null.
all := [
	input.command, input.file, input.http, input.blob, input.ask, input.record, input.listing,
]

given("command") if input.command != null

given("file") if input.file != null

given("http") if input.http != null

given("blob") if input.blob != null

given("ask") if input.ask != null

given("record") if input.record != null

given("listing") if input.listing != null

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
