# METADATA
# scope: package
# description: >-
#   A request goes only to a host, port, method and address class that the site lists, and never to
#   a metadata or link-local address.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.egress

import data.caponier.core.say

asked := {"call", "operation"}

order := 16

ok if input.targets.hosts == []

ok if {
	is_array(input.targets.hosts)
	every h in input.targets.hosts { reachable(h) }
}

# The hosts of a call matter only if its tool can send HTTP requests.
reachable(h) if data.site.egress[h]

ok if {
	input.schema == "caponier.operation/1"
	input.http == null
}

ok if {
	entry
	input.http.scheme in entry.schemes
	input.http.port in entry.ports
	input.http.method in entry.methods
	named
	is_number(input.http.hop)
	input.http.hop <= entry.max_hops
	is_number(input.http.body_bytes)
	input.http.body_bytes <= entry.max_body_bytes
	addresses_ok
}

entry := data.site.egress[input.http.host]

named if input.http.hop > 0

named if not "hosts" in input.tool.target_kinds

named if input.http.host in input.parent.targets.hosts

addresses_ok if {
	input.phase == "lookup"
	input.http.addrs == null
}

addresses_ok if {
	input.phase == "effect"
	is_array(input.http.addrs)
	count(input.http.addrs) > 0
	every a in input.http.addrs { address_ok(a) }
}

address_ok(a) if {
	a.class in entry.classes
	not a.class in never
}

# Refused even if the site lists them: cloud metadata, link-local and broadcast addresses.
never := {
	"linklocal", "metadata", "multicast", "broadcast", "unspecified", "reserved", "nat64", "other",
	"",
}

what := concat("; ", faults)

faults contains sprintf("host %s is not listed", [h]) if {
	some h in input.targets.hosts
	not reachable(h)
}

faults contains sprintf("host %s is not listed", [input.http.host]) if {
	input.http != null
	not entry
}

faults contains sprintf("%s %s://%s:%v is not among %s", [
	input.http.method, input.http.scheme, input.http.host, input.http.port, form,
]) if {
	form := concat(" ", [
		concat(",", entry.methods), concat(",", entry.schemes),
		concat(",", [sprintf("%v", [p]) | some p in entry.ports]),
	])
	not form_ok
}

form_ok if {
	input.http.scheme in entry.schemes
	input.http.port in entry.ports
	input.http.method in entry.methods
}

faults contains sprintf("host %s is not the call's", [input.http.host]) if {
	input.http != null
	not named
}

faults contains sprintf("redirect %v is over the limit", [input.http.hop]) if {
	input.http.hop > entry.max_hops
}

faults contains sprintf("a body of %v bytes is over %v", [sent, entry.max_body_bytes]) if {
	sent := input.http.body_bytes
	sent > entry.max_body_bytes
}

faults contains sprintf("address %s is %s, and listed are %s", [a.ip, a.class, listed]) if {
	some a in input.http.addrs
	not address_ok(a)
	listed := concat(", ", [k | some k in entry.classes; not k in never])
}

rule := sprintf("egress/%s", [input.http.host]) if {
	input.http != null
} else := "egress"

works := sprintf("hosts that the site lists: %s", [say.some_of(hosts, 5)])

hosts := {h | some h, _ in data.site.egress}

remedy := "In the site's data: egress/HOST with this scheme, port, method and address class."
