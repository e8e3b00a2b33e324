package caponier.core.check.egress_test

import data.caponier.core.fixture as f

test_listed_request_passes if {
	f.operated(f.with_http({})).allow
	f.operated(object.union(f.with_http({"addrs": null}), {"phase": "lookup"})).allow
}

test_host_that_is_not_listed_is_refused if {
	every x in [
		{"host": "evil.com"}, {
			"host": "evilapi.example.com",
		},
		{"scheme": "http"}, {"port": 8443}, {"method": "DELETE"}, {"method": "get"},
		{"hop": 3}, {"hop": null}, {"body_bytes": 101}, {"body_bytes": null},
	] {
		"egress" in f.failed(f.operated(f.with_http(x)))
	}
}

test_every_address_must_be_of_a_listed_class if {
	every addrs in [
		[], null, [{"ip": "10.0.0.1", "class": "private"}], [
			{"ip": "93.184.216.34", "class": "global"}, {"ip": "127.0.0.1", "class": "loopback"},
		],
		[{"ip": "169.254.169.254", "class": "linklocal"}], [{"ip": "x", "class": ""}],
	] {
		f.failed(f.operated(f.with_http({"addrs": addrs}))) == {"egress"}
	}
}

test_addresses_before_they_were_asked_for_are_refused if {
	f.failed(f.operated(object.union(f.with_http({}), {"phase": "lookup"}))) == {"egress"}
}

test_metadata_is_refused_even_if_listed if {
	site := {"egress": {"api.example.com": {"classes": ["global", "metadata", "linklocal"]}}}
	f.failed(f.operated_in(
		f.with_http({"addrs": [{
			"ip": "169.254.169.254", "class": "metadata",
		}]}),
		site,
	)) == {"egress"}
}

test_first_hop_goes_where_the_call_named if {
	site := {"egress": {"b.example.com": f.site.egress["api.example.com"]}}
	"egress" in f.failed(f.operated_in(f.with_http({"host": "b.example.com"}), site))
	f.operated_in(f.with_http({"host": "b.example.com", "hop": 1}), site).allow
	q := object.union(f.with_http({"host": "b.example.com"}), {"tool": {"target_kinds": []}})
	f.operated_in(q, site).allow
}

test_host_of_a_call_must_be_listed if {
	f.decided({"targets": {"hosts": ["api.example.com"]}}).allow
	d := f.decided({"targets": {"hosts": ["evil.com"]}})
	f.failed(d) == {"egress"}
	contains(d.deny[0].msg, "host evil.com is not listed")
}
