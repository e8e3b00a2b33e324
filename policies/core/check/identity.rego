# METADATA
# scope: package
# description: The principal is known here, came by a way that its entry accepts, and holds a role.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.identity

import data.caponier.core.roles

ok if count(roles.held) > 0

why := input.principal.id
