# METADATA
# scope: package
# description: May this principal see this tool in a list? What could never be allowed is not shown.
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
	"confirm": false, "obligations": obligations.value,
} if {
	ok
} else := {
	"schema": "caponier.decision/1", "allow": false, "tier": tier.name(tier.tool), "failed": [id | some id in failed],
	"deny": reasons.of(failed), "confirm": false, "obligations": obligations.value,
}

ok if {
	input.schema == "caponier.visible/1"
	check.schema.ok
	check.identity.ok
	check.grant.ok
	check.known.ok
	check.tier.visible_ok
}

failed contains "schema" if not input.schema == "caponier.visible/1"

failed contains "schema" if not check.schema.ok

failed contains "identity" if not check.identity.ok

failed contains "grant" if not check.grant.ok

failed contains "known" if not check.known.ok

failed contains "tier" if not check.tier.visible_ok
