package caponier.site.call_test

import data.caponier.site.call

at(tool, weekday, hour) := d if {
	d := call.deny with input as {
		"tool": {"name": tool}, "time": {"weekday": weekday, "hour_utc": hour},
	}
		with data.site.custom as {"working_hours": {"from": 7, "to": 16}}
}

test_deleting_in_working_hours_is_not_refused if at("delete_guest", 3, 10) == set()

test_deleting_at_night_is_refused if {
	some d in at("delete_guest", 3, 3)
	d.id == "team.hours"
}

test_deleting_at_the_weekend_is_refused if count(at("delete_snapshot", 6, 10)) == 1

test_reading_at_night_is_not_refused if at("list_guests", 3, 3) == set()

test_hours_that_are_no_numbers_refuse if {
	some hours in [{}, {"from": null, "to": 16}, {"from": 7, "to": null}, {"from": "7", "to": 16}]
	d := call.deny with input as {
		"tool": {"name": "delete_guest"}, "time": {"weekday": 3, "hour_utc": 10},
	}
		with data.site.custom as {"working_hours": hours}
	count(d) == 1
}
