# METADATA
# scope: package
# description: >-
#   An operation of a planned call is decided with what it touches, as its node reports it: guests
#   with their state, and what depends on guests, nodes, storages and units. The host looks this up
#   if only this is missing, and again before the operation is done.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.touched

import data.caponier.core.command
import data.caponier.core.say
import data.caponier.core.tables
import data.caponier.core.tier

asked := {"operation"}

order := 49

# The host asks the node only about an operation that would be allowed otherwise.
after := {id | some id in tables.of.required.operation}

ok if input.phase == "lookup"

ok if tier.rank == 1

ok if input.command == null

ok if wanted == set()

wanted := needed - {t.about | some t in input.touches}

# A call without a plan needs nothing except its targets.
default needed := set()

needed := ((guests | units) | storages) | powered if input.planning == true

needed := {key | some key in input.plan.rests} if input.plan != null

guests := {concat(":", ["guest", id]) | some id in command.mentioned_vmids(command.operation_words)}

units := {concat(":", ["unit", s]) |
	some [kind, s] in command.operation_words
	kind in {"unit", "service"}
} | {concat(":", ["unit", s]) |
	some ["pveservice", s] in command.operation_words
	input.target.node in command.operation_nodes
}

storages := {concat(":", ["storage", s]) | some ["storage", s] in command.operation_words}

# The guests that run on a node stop with it.
powered := {concat(":", ["node", n]) |
	some d in command.operation_described
	d.group == "power"
	some n in ({input.target.node} | command.operation_nodes)
}

what := sprintf("%s has not said what is touched: %s", [
	input.target.node,
	say.some_of(wanted, 3),
])

rule := "the facts that a plan rests on"

works := "the same call when the node answers"

remedy := "Nothing: the host asks the node, as far as the rest of the operation is allowed."
