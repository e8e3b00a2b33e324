package caponier.core.listing_test

import data.caponier.core.fixture as f
import data.caponier.core.listing

listed(name) := c if {
	some c in listing.commands with data.site as f.site
	c.name == name
}

test_entry_is_listed_with_what_it_takes if {
	c := listed("pct snapshot")
	c.operands == ["VMID", "SNAPNAME"]
	c.options == {"--description": "TEXT"}
	[c.group, c.tier, c.site] == ["snapshot", "yellow", false]
}

test_flags_have_no_value_and_lists_show_theirs if {
	c := listed("ss")
	c.options["-t"] == ""
	c.options["-f"] == "inet|inet6|unix|link|netlink"
	c.source != ""
}

test_tier_is_the_sites if {
	listed("qm stop").tier == "red"
	listed("qm start").tier == "yellow"
}

test_commands_of_the_site_are_listed if listed("mytool show").site == true
