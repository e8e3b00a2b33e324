# METADATA
# scope: package
# description: One role that grants the tool also reaches every node that is named or run on.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.node

import data.caponier.core.roles

call_ok if count(roles.call_nodes) > 0

operation_ok if count(roles.operation_nodes) > 0
