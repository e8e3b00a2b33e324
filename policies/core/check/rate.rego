# METADATA
# scope: package
# description: The principal and the target are called no more often than the site allows. The counts include this call.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.rate

ok if {
	is_number(input.facts.calls_60s)
	is_number(input.facts.tool_calls_60s)
	is_number(input.facts.target_calls_60s)
	is_number(data.site.limits.calls_per_minute)
	is_number(tool_limit)
	is_number(data.site.limits.target_calls_per_minute)
	input.facts.calls_60s <= data.site.limits.calls_per_minute
	input.facts.tool_calls_60s <= tool_limit
	input.facts.target_calls_60s <= data.site.limits.target_calls_per_minute
}

tool_limit := object.get(data.site.limits, "tool_calls_per_minute", data.site.limits.calls_per_minute)

# When there is room again under every limit that is exceeded.
again contains input.facts.calls_retry_s if input.facts.calls_60s > data.site.limits.calls_per_minute

again contains input.facts.tool_retry_s if input.facts.tool_calls_60s > tool_limit

again contains input.facts.target_retry_s if input.facts.target_calls_60s > data.site.limits.target_calls_per_minute

why := sprintf("%v calls, %v of this tool, %v on this target; come back in %v seconds", [
	input.facts.calls_60s, input.facts.tool_calls_60s,
	input.facts.target_calls_60s, max(again),
])
