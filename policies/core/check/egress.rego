# METADATA
# scope: package
# description: Nothing goes out to a host, port, method or address class that the site does not list, and never to metadata or link-local addresses.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.egress

call_ok if {
	every h in input.targets.hosts { reachable(h) }
}

# Hosts matter to a call only when its tool can reach out by HTTP.
reachable(h) if data.site.egress[h]

operation_ok if input.http == null

operation_ok if {
	entry := data.site.egress[input.http.host]
	input.http.scheme in entry.schemes
	input.http.port in entry.ports
	input.http.method in entry.methods
	named
	is_number(input.http.hop)
	input.http.hop <= entry.max_hops
	is_number(input.http.body_bytes)
	input.http.body_bytes <= entry.max_body_bytes
	addresses_ok(entry)
}

named if input.http.hop > 0

named if not "hosts" in input.tool.target_kinds

named if input.http.host in input.parent.targets.hosts

addresses_ok(_) if {
	input.phase == "lookup"
	input.http.addrs == null
}

addresses_ok(entry) if {
	input.phase == "effect"
	is_array(input.http.addrs)
	count(input.http.addrs) > 0
	every a in input.http.addrs {
		a.class in entry.classes
		not a.class in never
	}
}

# Whatever the site lists: no cloud metadata, no neighbour of the wire, no broadcast.
never := {"linklocal", "metadata", "multicast", "broadcast", "unspecified", "reserved", "nat64", "other", ""}

why := concat(", ", {h | some h in input.targets.hosts; not reachable(h)}) if input.schema == "caponier.call/1"

why := sprintf("%s %s://%s:%v", [input.http.method, input.http.scheme, input.http.host, input.http.port]) if {
	input.schema == "caponier.operation/1"
}
