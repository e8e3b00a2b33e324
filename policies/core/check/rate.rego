# METADATA
# scope: package
# description: >-
#   The principal, the tool and the target are called no more often than the site allows. The
#   counts include this call.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.rate

import data.caponier.core.host

asked := {"call"}

order := 30

ok if {
	is_number(input.facts.calls_60s)
	is_number(input.facts.tool_calls_60s)
	is_number(input.facts.target_calls_60s)
	is_number(data.site.limits.calls_per_minute)
	is_number(data.site.limits.tool_calls_per_minute)
	is_number(data.site.limits.target_calls_per_minute)
	input.facts.calls_60s <= data.site.limits.calls_per_minute
	input.facts.tool_calls_60s <= data.site.limits.tool_calls_per_minute
	input.facts.target_calls_60s <= data.site.limits.target_calls_per_minute
}

# The host makes its own calls no more often than necessary.
ok if host.itself

exceeded contains "calls_per_minute" if {
	input.facts.calls_60s > data.site.limits.calls_per_minute
}

exceeded contains "tool_calls_per_minute" if {
	input.facts.tool_calls_60s > data.site.limits.tool_calls_per_minute
}

exceeded contains "target_calls_per_minute" if {
	input.facts.target_calls_60s > data.site.limits.target_calls_per_minute
}

what := sprintf("too many calls in a minute: %v, %v of this tool, %v on this target", [
	input.facts.calls_60s, input.facts.tool_calls_60s, input.facts.target_calls_60s,
])

rule := concat(", ", {sprintf("limits/%s", [name]) | some name in exceeded})

works := sprintf("the same call in %v seconds", [max({retry[name] | some name in exceeded})])

# When there is room again under each limit.
retry := {
	"calls_per_minute": input.facts.calls_retry_s,
	"tool_calls_per_minute": input.facts.tool_retry_s,
	"target_calls_per_minute": input.facts.target_retry_s,
}

remedy := concat("", [
	"Wait, or limits/calls_per_minute, limits/tool_calls_per_minute and ",
	"limits/target_calls_per_minute.",
])
