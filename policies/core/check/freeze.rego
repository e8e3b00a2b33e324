# METADATA
# scope: package
# description: Nothing is allowed while the host is frozen.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.freeze

ok if input.mode.frozen == false

why := input.mode.reason
