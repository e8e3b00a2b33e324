# METADATA
# scope: package
# description: The site gives the tool a tier, and so switches it on.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.known

ok if data.site.tiers[sprintf("%s:%s", [input.kind, input.tool.name])]

why := input.tool.name
