# METADATA
# scope: package
# description: One role of the principal grants the tool with all the imports that the tool declares.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.grant

import data.caponier.core.roles

ok if count(roles.granting) > 0

why := input.tool.name
