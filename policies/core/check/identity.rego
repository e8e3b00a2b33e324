# METADATA
# scope: package
# description: >-
#   The principal is known here, used a kind of authentication that its entry accepts, and holds a
#   role.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.identity

import data.caponier.core.roles

asked := {"call", "operation", "visible"}

order := 2

ok if roles.held != set()

what := sprintf("%s (by %s) holds no role here", [input.principal.id, input.principal.auth])

rule := sprintf("principals/%s in the site's data", [input.principal.id])

works := "nothing that you can do; the operator gives roles"

remedy := concat("", [
	"In the site's data: principals/ID with the way it authenticates under auth and at least one ",
	"role that exists. A credential that names roles, or should and does not, leaves only these.",
])
