# METADATA
# scope: package
# description: >-
#   A part of check role - the time, in UTC, is within the hours of a role that grants everything
#   else.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.hours

import data.caponier.core.roles
import data.caponier.core.scope

asked := set()

order := 14

after := {"identity", "grant", "known", "tier"}

what := concat("; ", [said(name) | some name in sort(roles.fit)])

said(name) := sprintf("outside the hours of role %s; next: %s UTC", [
	name, scope.clock(scope.next(name)),
]) if {
	scope.of(name).hours != []
} else := sprintf("role %s has no hours: it never grants anything", [name])

rule := concat(", ", [sprintf("roles/%s/hours", [name]) | some name in sort(roles.fit)])

works := "the same call within these hours; each operation is decided at its own time"

remedy := "Wait, or in the site's data: roles/NAME/hours."
