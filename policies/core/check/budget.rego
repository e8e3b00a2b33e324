# METADATA
# scope: package
# description: Money spent today is below the day's budget.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.budget

ok if {
	is_number(input.facts.usd_micros_today)
	is_number(data.site.limits.usd_micros_per_day)
	input.facts.usd_micros_today <= data.site.limits.usd_micros_per_day
}

why := sprintf("%v of %v", [input.facts.usd_micros_today, data.site.limits.usd_micros_per_day])
