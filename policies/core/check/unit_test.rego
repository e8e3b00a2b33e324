package caponier.core.check.unit_test

import data.caponier.core.fixture as f

restart(name) := object.union(f.run(["systemctl", "restart", "--", name]), {
	"parent": {"tier": "red", "targets": {"services": [name]}},
	"tool": {"name": "stop"},
})

named(names) := {"target": {"services": names}}

asked(d) if {
	not d.allow
	d.failed == ["unit"]
}

test_restart_asks_the_node_for_the_names_first if {
	d := f.operated(object.union(restart("nginx"), named(null)))
	asked(d)
	d.units == ["nginx"]
}

test_restart_passes_with_the_names_that_the_node_has if {
	d := f.operated(object.union(restart("nginx"), named(["nginx.service"])))
	d.allow
	d.units == []
}

test_node_is_not_asked_about_a_refused_operation if {
	d := f.operated(object.union(
		object.union(restart("nginx"), named(null)),
		{"principal": {"id": "eve"}},
	))
	not d.allow
	d.units == []
}

test_alias_of_a_protected_service_is_that_service if {
	sites := {"protected": {"services": [{
		"service": "ntpsec", "nodes": ["*"], "reason": "the clock",
	}]}}
	q := object.union(restart("ntpd"), named(["ntpsec.service", "ntpd.service"]))
	d := f.operated_in(q, sites)
	"protected" in f.failed(d)
}

test_alias_of_a_red_service_is_red if {
	low := {"parent": {"tier": "yellow"}}
	d := f.operated(object.union(
		object.union(restart("secure-shell"), named(["secure-shell.service", "ssh.service"])),
		low,
	))
	d.tier == "red"
	"tier" in f.failed(d)
}

test_read_needs_no_names_where_nothing_is_protected if {
	sites := {"protected": {"services": []}}
	f.operated_in(object.union(f.run(["systemctl", "status", "nginx"]), named(null)), sites).allow
}

test_read_needs_names_where_a_service_is_protected if {
	sites := {"protected": {"services": [{
		"service": "other", "nodes": ["*"], "reason": "r",
	}]}}
	asked(f.operated_in(object.union(f.run(["systemctl", "status", "nginx"]), named(null)), sites))
}

test_lookup_itself_needs_no_names if {
	f.operated(object.union(object.union(restart("nginx"), named(null)), {"phase": "lookup"})).allow
}
