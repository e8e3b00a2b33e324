# METADATA
# scope: package
# description: No freeze applies to the question.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.freeze

import data.caponier.core.command
import data.caponier.core.inventory

asked := {"call", "operation"}

order := 1

ok if input.mode.freezes == []

ok if {
	is_array(input.mode.freezes)
	every f in input.mode.freezes { readable(f) }
	is_set(machines)
	count(freezes) == 0
}

readable(f) if {
	is_string(f.kind)
	is_string(f.name)
}

freezes contains f if {
	some f in input.mode.freezes
	concerns(f.kind, f.name)
}

concerns("all", _)

concerns("principal", name) if name == input.principal.id

concerns("tool", name) if name == input.tool.name

# `caponier plugin revoke` names a module by its digest.
concerns("plugin", digest) if digest == input.plugin.digest

concerns("node", name) if name in machines

# A freeze of an unknown kind freezes everything.
concerns(kind, _) if not kind in {"all", "principal", "tool", "plugin", "node"}

# pvesh on one node can act on another node that its path names.
machines := inventory.also(names | command.mentioned_nodes(words))

names := inventory.named | {n | some n in input.parent.targets.nodes}

words := command.call_words if input.schema == "caponier.call/1"

words := command.operation_words if input.schema == "caponier.operation/1"

what := sprintf("%s: %s", [concat(", ", subjects), concat("; ", reasons)]) if {
	count(freezes) > 0
} else := "everything is frozen: the list of freezes cannot be read"

frozen(f) := "everything is frozen" if {
	f.kind == "all"
} else := sprintf("the module %s is revoked", [f.name]) if {
	f.kind == "plugin"
} else := sprintf("%s %s is frozen", [f.kind, f.name])

subjects := {frozen(f) | some f in freezes}

reasons := {f.reason | some f in freezes}

rule := "freeze"

works := "nothing until an operator ends the freeze; do not repeat the call"

remedy := "caponier thaw, by an operator."
