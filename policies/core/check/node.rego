# METADATA
# scope: package
# description: One role that grants the tool reaches every node that is named or run on.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.node

import data.caponier.core.roles

call_ok if {
	some name in roles.granting
	roles.call_reaches(data.site.roles[name])
}

operation_ok if {
	some name in roles.granting
	roles.operation_reaches(data.site.roles[name])
}
