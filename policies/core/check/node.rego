# METADATA
# scope: package
# description: One role that grants the tool reaches every node that is named or run on.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.node

import data.caponier.core.command
import data.caponier.core.roles

call_ok if reached({n | some n in input.targets.nodes} | command.call_nodes)

operation_ok if reached({input.target.node | input.target != null} | command.operation_nodes)

reached(names) if {
	some name in roles.granting
	roles.reaches(data.site.roles[name], names)
}
