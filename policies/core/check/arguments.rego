# METADATA
# scope: package
# description: The arguments are no larger than the site allows.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.arguments

asked := {"call"}

order := 22

ok if {
	is_number(input.args.bytes)
	is_number(data.site.limits.argument_bytes)
	input.args.bytes >= 0
	input.args.bytes <= data.site.limits.argument_bytes
}

what := sprintf("the arguments have %v bytes, over the limit of %v", [
	input.args.bytes, data.site.limits.argument_bytes,
])

rule := "limits/argument_bytes"

works := "smaller arguments; large data as a file"

remedy := "Smaller arguments, or limits/argument_bytes."
