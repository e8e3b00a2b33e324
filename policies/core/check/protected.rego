# METADATA
# scope: package
# description: Nothing that the site protects is touched, by whatever name it is reached. An entry may still allow reading.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.protected

import data.caponier.core.command
import data.caponier.core.files
import data.caponier.core.tier

call_ok if count(call_hits) == 0

operation_ok if count(operation_hits) == 0

call_hits contains hit("guest", id, entry.reason) if {
	some id in ({v | some v in input.targets.vmids} | command.mentioned_vmids(command.call_words))
	entry := data.site.protected.vmids[id]
	not readable(entry, tier.call)
}

call_hits contains hit("node", n, entry.reason) if {
	some n in ({v | some v in input.targets.nodes} | command.mentioned_nodes(command.call_words))
	entry := data.site.protected.nodes[n]
	not readable(entry, tier.call)
}

call_hits contains hit("host", h, entry.reason) if {
	some h in ({v | some v in input.targets.hosts} | {n.host | some n in input.nodes})
	entry := data.site.protected.hosts[h]
	not readable(entry, tier.call)
}

call_hits contains hit("service", s, entry.reason) if {
	some s in ({command.unit(v) | some v in input.targets.services} | command.services(command.call_words))
	some entry in service_entries(s)
	on_nodes(entry, {n | some n in input.targets.nodes})
	not readable(entry, tier.call)
}

call_hits contains hit("guest", id, entry.reason) if {
	some p in input.targets.paths
	some id in command.numbers(p)
	entry := data.site.protected.vmids[id]
	not readable(entry, tier.call)
}

operation_hits contains hit("guest", id, entry.reason) if {
	some id in (command.mentioned_vmids(command.operation_words) | file_numbers)
	entry := data.site.protected.vmids[id]
	not readable(entry, tier.operation)
}

operation_hits contains hit("node", n, entry.reason) if {
	some n in ((command.mentioned_nodes(command.operation_words) | {input.target.node | input.target != null}) | file_segments)
	entry := data.site.protected.nodes[n]
	not readable(entry, tier.operation)
}

operation_hits contains hit("host", h, entry.reason) if {
	some h in (({input.target.host | input.target != null} | {input.http.host | input.http != null}) | addresses)
	entry := data.site.protected.hosts[h]
	not readable(entry, tier.operation)
}

operation_hits contains hit("service", s, entry.reason) if {
	count(data.site.protected.services) > 0
	some s in command.services(command.operation_words)
	some entry in service_entries(s)
	on_nodes(entry, {input.target.node} | command.operation_nodes)
	not readable(entry, tier.operation)
}

addresses contains a.ip if some a in input.target.addrs

addresses contains a.ip if some a in input.http.addrs

file_paths contains p if {
	some p in [input.file.path, input.file.real_path]
	is_string(p)
	not files.staged(p)
}

file_numbers contains id if {
	some p in file_paths
	some id in command.numbers(p)
}

file_segments contains s if {
	some p in file_paths
	some s in split(p, "/")
}

service_entries(s) := [e | some e in data.site.protected.services; command.unit(e.service) == s]

on_nodes(entry, _) if entry.nodes == ["*"]

on_nodes(entry, names) if {
	some n in entry.nodes
	n in names
}

readable(entry, rank) if {
	entry.reads == "allow"
	rank == 1
}

hit(kind, name, reason) := sprintf("%s %s: %s", [kind, name, reason])

why := concat("; ", call_hits) if input.schema == "caponier.call/1"

why := concat("; ", operation_hits) if input.schema == "caponier.operation/1"
