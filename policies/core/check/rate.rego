# METADATA
# scope: package
# description: The principal and the target are called no more often than the site allows. The counts include this call.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.rate

ok if {
	is_number(input.facts.calls_60s)
	is_number(input.facts.target_calls_60s)
	is_number(data.site.limits.calls_per_minute)
	is_number(data.site.limits.target_calls_per_minute)
	input.facts.calls_60s <= data.site.limits.calls_per_minute
	input.facts.target_calls_60s <= data.site.limits.target_calls_per_minute
}

why := sprintf("%v calls, %v on this target", [input.facts.calls_60s, input.facts.target_calls_60s])
