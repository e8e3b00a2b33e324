# METADATA
# scope: package
# description: One role alone grants the tool, the nodes, the tier and the commands. Two roles are never added together.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.role

import data.caponier.core.roles

call_ok if count(roles.call_clear) > 0

operation_ok if count(roles.operation_clear) > 0
