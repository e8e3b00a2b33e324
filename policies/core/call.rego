# METADATA
# scope: package
# description: May this principal call this tool with these arguments? Allowed only when every named check holds.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.call

import data.caponier.core.check
import data.caponier.core.obligations
import data.caponier.core.reasons
import data.caponier.core.tier

# METADATA
# entrypoint: true
decision := {
	"schema": "caponier.decision/1", "allow": true, "tier": tier.name(tier.call), "failed": [], "deny": [],
	"confirm": false, "obligations": obligations.of(tier.call),
} if {
	ok
} else := {
	"schema": "caponier.decision/1", "allow": false, "tier": tier.name(tier.call), "failed": [id | some id in failed],
	"deny": array.concat(reasons.of(failed), [d | some d in site_deny]), "confirm": failed == {"confirmation"},
	"obligations": obligations.of(tier.call),
}

ok if {
	input.schema == "caponier.call/1"
	check.schema.ok
	check.freeze.ok
	check.identity.ok
	check.grant.ok
	check.known.ok
	check.target.ok
	check.protected.call_ok
	check.tier.call_ok
	check.role.call_ok
	check.node.call_known
	check.readonly.call_ok
	check.command.call_ok
	check.path.call_ok
	check.egress.call_ok
	check.arguments.ok
	check.rate.ok
	check.budget.ok
	check.confirmation.ok
	count(site_deny) == 0
}

site_deny contains d if some d in data.caponier.site.call.deny

# Nobody is asked to confirm what would be refused all the same.
failed := unmet if {
	count(unmet) > 0
} else := {"confirmation"} if {
	not check.confirmation.ok
} else := set()

unmet contains "schema" if not input.schema == "caponier.call/1"

unmet contains "schema" if not check.schema.ok

unmet contains "freeze" if not check.freeze.ok

unmet contains "identity" if not check.identity.ok

# Who is not known is told only that; so is who has no role for the tool.
unmet contains "grant" if {
	check.identity.ok
	not check.grant.ok
}

unmet contains "known" if not check.known.ok

unmet contains "target" if not check.target.ok

unmet contains "protected" if not check.protected.call_ok

unmet contains "node" if {
	check.grant.ok
	not check.node.call_ok
}

unmet contains "ceiling" if {
	check.grant.ok
	not check.ceiling.call_ok
}

# A role that grants everything together implies node, ceiling and granted commands; alone it fails when only two roles together would do.
unmet contains "role" if {
	not check.role.call_ok
	check.grant.ok
	check.node.call_ok
	check.ceiling.call_ok
	check.command.call_granted
	tier.call < 4
}

# A tool without a tier counts as black; that it has none says it better.
unmet contains "tier" if {
	check.known.ok
	not check.tier.call_ok
}

unmet contains "readonly" if not check.readonly.call_ok

unmet contains "command" if not check.command.call_ok

# Without a role for the tool there is none for its commands either, and grant says so.
unmet contains "command" if {
	check.grant.ok
	not check.command.call_granted
}

unmet contains "path" if not check.path.call_ok

unmet contains "egress" if not check.egress.call_ok

unmet contains "arguments" if not check.arguments.ok

unmet contains "rate" if not check.rate.ok

unmet contains "budget" if not check.budget.ok

unmet contains "site" if not count(site_deny) == 0
