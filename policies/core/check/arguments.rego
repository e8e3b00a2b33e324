# METADATA
# scope: package
# description: The arguments are no larger than the site allows.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.arguments

ok if {
	is_number(input.args.bytes)
	is_number(data.site.limits.argument_bytes)
	input.args.bytes >= 0
	input.args.bytes <= data.site.limits.argument_bytes
}

why := sprintf("%v bytes, limit %v", [input.args.bytes, data.site.limits.argument_bytes])
