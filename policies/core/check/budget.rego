# METADATA
# scope: package
# description: The money spent today is below the daily budget.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.budget

asked := {"call"}

order := 31

ok if {
	is_number(input.facts.usd_micros_today)
	is_number(data.site.limits.usd_micros_per_day)
	input.facts.usd_micros_today <= data.site.limits.usd_micros_per_day
}

what := sprintf("%v millionths of a dollar are spent today, of %v", [
	input.facts.usd_micros_today, data.site.limits.usd_micros_per_day,
])

rule := "limits/usd_micros_per_day"

works := "the same call tomorrow (UTC)"

remedy := "Wait for tomorrow, or limits/usd_micros_per_day."
