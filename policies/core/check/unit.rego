# METADATA
# scope: package
# description: >-
#   An operation that names services is decided with the names that its node has for them. The host
#   asks the node if only this is missing.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.unit

import data.caponier.core.command
import data.caponier.core.say
import data.caponier.core.tables
import data.caponier.core.tier

asked := {"operation"}

order := 49

# The host asks the node only about an operation that would be allowed otherwise.
after := {id | some id in tables.of.required.operation}

ok if input.phase == "lookup"

ok if input.command == null

ok if wanted == set()

ok if is_array(input.target.services)

# A read of services matters only if the site protects services.
wanted contains s if {
	some [kind, s] in command.operation_words
	kind in {"service", "unit"}
	matters
}

matters if tier.rank > 1

matters if not data.site.protected.services == []

what := sprintf("%s has not said what it calls %s", [input.target.node, say.some_of(wanted, 3)])

rule := "protected/services"

works := "the same call when the node answers"

remedy := "Nothing: the host asks the node, as far as the rest of the operation is allowed."
