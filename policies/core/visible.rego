# METADATA
# scope: package
# description: May this principal see this tool in a list, or a node or guest among those that it could act on? What could never be allowed is not shown.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.visible

import data.caponier.core.check
import data.caponier.core.obligations
import data.caponier.core.reasons
import data.caponier.core.tier

# METADATA
# entrypoint: true
decision := {
	"schema": "caponier.decision/1", "allow": true, "tier": tier.name(tier.tool), "failed": [], "deny": [],
	"confirm": false, "obligations": obligations.of(tier.tool),
} if {
	ok
} else := {
	"schema": "caponier.decision/1", "allow": false, "tier": tier.name(tier.tool), "failed": [id | some id in failed],
	"deny": reasons.of(failed), "confirm": false, "obligations": obligations.of(tier.tool),
}

ok if {
	input.schema == "caponier.visible/1"
	check.schema.ok
	check.identity.ok
	check.grant.ok
	check.known.ok
	check.tier.visible_ok
	check.ceiling.visible_ok
	check.node.visible_ok
	check.protected.visible_ok
	check.readonly.visible_ok
}

failed contains "schema" if not input.schema == "caponier.visible/1"

failed contains "schema" if not check.schema.ok

failed contains "identity" if not check.identity.ok

# Who is not known is told only that; so is who has no role for the tool.
failed contains "grant" if {
	check.identity.ok
	not check.grant.ok
}

failed contains "known" if not check.known.ok

failed contains "tier" if {
	check.known.ok
	not check.tier.visible_ok
}

failed contains "ceiling" if {
	check.grant.ok
	not check.ceiling.visible_ok
}

failed contains "node" if {
	check.grant.ok
	not check.node.visible_ok
}

failed contains "protected" if not check.protected.visible_ok

failed contains "readonly" if not check.readonly.visible_ok
