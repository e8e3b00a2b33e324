# METADATA
# scope: package
# description: In read-only mode nothing above green is allowed.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.readonly

import data.caponier.core.tier

call_ok if input.mode.read_only == false

call_ok if {
	input.mode.read_only == true
	tier.call == 1
}

# What read-only mode would refuse is not shown either.
visible_ok if input.mode.read_only == false

visible_ok if {
	input.mode.read_only == true
	tier.tool == 1
}

operation_ok if input.mode.read_only == false

operation_ok if {
	input.mode.read_only == true
	tier.operation == 1
}
