# METADATA
# scope: package
# description: The team's own rules. They can only refuse.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.site.call

# The message needs nothing that data.yaml may lack: an undefined value would switch the rule off.
deny contains {
	"id": "team.hours",
	"msg": sprintf("%s runs in working hours only (custom/working_hours).", [input.tool.name]),
} if {
	input.tool.name in {"delete_guest", "delete_snapshot"}
	not working
}

hours := data.site.custom.working_hours

working if {
	input.time.weekday in {1, 2, 3, 4, 5}
	is_number(input.time.hour_utc)
	is_number(hours.from) # null is below every number
	is_number(hours.to)
	input.time.hour_utc >= hours.from
	input.time.hour_utc < hours.to
}
