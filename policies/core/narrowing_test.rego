package caponier.core.narrowing_test

import data.caponier.core.fixture as f
import data.caponier.core.lint
import data.caponier.core.listing
import data.caponier.core.use

site(keys) := object.union(f.site, {"roles": {"operator": keys}})

says(keys, text) if {
	problems := lint.problems with data.site as site(keys)
	some p in problems
	startswith(p, "roles/operator/")
	contains(p, text)
}

test_mistakes_in_what_narrows_a_role_are_found if {
	says({"services": ["nginx.servce"]}, "ends in no kind of unit")
	says({"hosts": ["b.example.com"]}, "no entry of egress is \"b.example.com\"")
	says({"paths": ["/var/log/"]}, "is not an absolute path")
	says({"paths": ["/opt"]}, "has nothing in common with files/read and files/write")
	hours := {"days": ["mon"], "from": "09:00", "to": "09:00"}
	says({"hours": hours}, "from and to are both 09:00")
}

test_what_narrows_a_role_is_taken if {
	keys := {
		"services": ["nginx", "a.timer"], "hosts": ["api.example.com"],
		"paths": ["/var/log/nginx", "/var"],
		"hours": {"days": ["mon"], "from": "09:00", "to": "08:00"},
	}
	problems := lint.problems with data.site as site(keys)
	every p in problems { not startswith(p, "roles/operator/") }
}

test_what_a_call_is_held_to_is_told if {
	keys := {"guests": ["105"], "services": [], "hours": {
		"days": ["mon"], "from": "09:00", "to": "10:00",
	}}
	held := listing.held with data.site as site(keys) with input as f.a_call
	held == {{
		"role": "operator", "guests": null, "services": [], "hosts": null, "paths": null,
		"hours": [[1980, 2040]],
	}}
}

test_what_was_named_is_of_use if {
	keys := {
		"guests": ["105", "106"], "services": ["nginx"], "paths": ["/var", "/srv/in"],
		"hours": {"days": ["mon", "fri"], "from": "09:00", "to": "11:00"},
	}
	q := object.union(f.a_call, {"targets": {
		"services": ["nginx.service"], "paths": ["/var/log/x"],
	}})
	u := use.of with data.site as site(keys) with input as q
	u.pointed == true
	u.named == {
		"guests": ["105"], "services": ["nginx.service"], "hosts": [], "paths": ["/var/log/x"],
	}
	every key in [["guests", "105"], ["services", "nginx"], ["paths", "/var"]] {
		array.concat(["roles", "operator"], key) in u.entries
	}
	["roles", "operator", "hours", "days", "fri"] in u.entries
	every key in [["guests", "106"], ["paths", "/srv/in"], ["hours", "days", "mon"]] {
		not array.concat(["roles", "operator"], key) in u.entries
	}
}
