# METADATA
# scope: package
# description: In read-only mode nothing above green is allowed, or shown.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.readonly

import data.caponier.core.tier

asked := {"call", "operation", "visible"}

order := 13

ok if input.mode.read_only == false

ok if {
	input.mode.read_only == true
	tier.rank == 1
}

what := sprintf("the host is read-only, and this is %s", [tier.name])

rule := "read-only mode"

works := "green tools and commands"

remedy := "Switch read-only mode off."
