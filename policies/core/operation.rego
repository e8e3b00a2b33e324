# METADATA
# scope: package
# description: May this running call do this operation? It stays inside its call, and every check of the principal is made again.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.operation

import data.caponier.core.check
import data.caponier.core.obligations
import data.caponier.core.reasons
import data.caponier.core.tier

# METADATA
# entrypoint: true
decision := {
	"schema": "caponier.decision/1", "allow": true, "tier": tier.name(tier.operation), "failed": [], "deny": [],
	"confirm": false, "obligations": obligations.of(tier.operation),
} if {
	ok
} else := {
	"schema": "caponier.decision/1", "allow": false, "tier": tier.name(tier.operation), "failed": [id | some id in failed],
	"deny": array.concat(reasons.of(failed), [d | some d in site_deny]), "confirm": false, "obligations": obligations.of(tier.operation),
}

ok if {
	input.schema == "caponier.operation/1"
	check.schema.ok
	check.freeze.ok
	check.identity.ok
	check.grant.ok
	check.imports.ok
	check.declared.ok
	check.bound.ok
	check.protected.operation_ok
	check.tier.operation_ok
	check.role.operation_ok
	check.node.operation_known
	check.readonly.operation_ok
	check.command.operation_ok
	check.path.operation_ok
	check.file.ok
	check.egress.operation_ok
	check.limits.ok
	count(site_deny) == 0
}

site_deny contains d if some d in data.caponier.site.operation.deny

failed contains "schema" if not input.schema == "caponier.operation/1"

failed contains "schema" if not check.schema.ok

failed contains "freeze" if not check.freeze.ok

failed contains "identity" if not check.identity.ok

# Who is not known is told only that; so is who has no role for the tool.
failed contains "grant" if {
	check.identity.ok
	not check.grant.ok
}

failed contains "imports" if not check.imports.ok

failed contains "declared" if not check.declared.ok

failed contains "bound" if not check.bound.ok

failed contains "protected" if not check.protected.operation_ok

failed contains "node" if {
	check.grant.ok
	not check.node.operation_ok
}

failed contains "ceiling" if {
	check.grant.ok
	not check.ceiling.operation_ok
}

# A role that grants everything together implies node, ceiling and granted commands; alone it fails when only two roles together would do.
failed contains "role" if {
	not check.role.operation_ok
	check.grant.ok
	check.node.operation_ok
	check.ceiling.operation_ok
	check.command.operation_granted
	tier.operation < 4
}

failed contains "tier" if not check.tier.operation_ok

failed contains "readonly" if not check.readonly.operation_ok

failed contains "command" if not check.command.operation_ok

failed contains "command" if {
	check.grant.ok
	not check.command.operation_granted
}

failed contains "path" if not check.path.operation_ok

failed contains "file" if not check.file.ok

failed contains "egress" if not check.egress.operation_ok

failed contains "limits" if not check.limits.ok

failed contains "site" if not count(site_deny) == 0
