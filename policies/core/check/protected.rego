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

visible_ok if {
	every n in input.targets.nodes { shown(n, data.site.protected.nodes) }
	every id in input.targets.vmids { shown(id, data.site.protected.vmids) }
}

shown(name, entries) if not entries[name]

shown(name, entries) if readable(entries[name], tier.tool)

call_hits contains hit("guest", id, entry.reason) if {
	some id in input.targets.vmids
	entry := data.site.protected.vmids[id]
	not readable(entry, tier.call)
}

call_hits contains hit("guest", id, entry.reason) if {
	input.commands != []
	some id in command.mentioned_vmids(command.call_words)
	entry := data.site.protected.vmids[id]
	not readable(entry, tier.call)
}

call_hits contains hit("guest", id, entry.reason) if {
	some p in input.targets.paths
	some id in command.numbers(p)
	entry := data.site.protected.vmids[id]
	not readable(entry, tier.call)
}

# The unit of a guest, such as pve-container@103, is that guest.
call_hits contains hit("guest", id, entry.reason) if {
	some s in input.targets.services
	some id in command.numbers(s)
	entry := data.site.protected.vmids[id]
	not readable(entry, tier.call)
}

call_hits contains hit("node", n, entry.reason) if {
	some n in input.targets.nodes
	entry := data.site.protected.nodes[n]
	not readable(entry, tier.call)
}

call_hits contains hit("node", n, entry.reason) if {
	input.commands != []
	some n in command.mentioned_nodes(command.call_words)
	entry := data.site.protected.nodes[n]
	not readable(entry, tier.call)
}

call_hits contains hit("node", n, entry.reason) if {
	some p in input.targets.paths
	some n in split(p, "/")
	entry := data.site.protected.nodes[n]
	not readable(entry, tier.call)
}

call_hits contains hit("host", h, entry.reason) if {
	some h in input.targets.hosts
	entry := data.site.protected.hosts[h]
	not readable(entry, tier.call)
}

call_hits contains hit("host", h, entry.reason) if {
	count(data.site.protected.hosts) > 0
	some h in command.own_names(command.call_words)
	entry := data.site.protected.hosts[h]
	not readable(entry, tier.call)
}

call_hits contains hit("node", n.name, entry.reason) if {
	input.commands != []
	count(data.site.protected.nodes) > 0
	some n in input.nodes
	entry := data.site.protected.nodes[n.name]
	n.host in command.own_names(command.call_words)
	not readable(entry, tier.call)
}

# A node is known by its address too.
call_hits contains hit("host", n.host, entry.reason) if {
	count(data.site.protected.hosts) > 0
	some n in input.nodes
	entry := data.site.protected.hosts[n.host]
	n.name in ({t | some t in input.targets.nodes} | command.call_nodes)
	not readable(entry, tier.call)
}

call_hits contains hit("service", s, entry.reason) if {
	count(data.site.protected.services) > 0
	some s in ({command.unit(v) | some v in input.targets.services} | command.mentioned_services(command.call_words))
	some entry in service_entries(s)
	on_nodes(entry, {n | some n in input.targets.nodes} | command.call_nodes)
	not readable(entry, tier.call)
}

operation_hits contains hit("guest", id, entry.reason) if {
	input.command != null
	some id in command.mentioned_vmids(command.operation_words)
	entry := data.site.protected.vmids[id]
	not readable(entry, tier.operation)
}

operation_hits contains hit("guest", id, entry.reason) if {
	input.file != null
	some id in file_numbers
	entry := data.site.protected.vmids[id]
	not readable(entry, tier.operation)
}

operation_hits contains hit("node", n, entry.reason) if {
	n := input.target.node
	entry := data.site.protected.nodes[n]
	not readable(entry, tier.operation)
}

operation_hits contains hit("node", n, entry.reason) if {
	count(data.site.protected.nodes) > 0
	some n in (command.mentioned_nodes(command.operation_words) | file_segments)
	entry := data.site.protected.nodes[n]
	not readable(entry, tier.operation)
}

operation_hits contains hit("host", h, entry.reason) if {
	some h in named_hosts
	entry := data.site.protected.hosts[h]
	not readable(entry, tier.operation)
}

operation_hits contains hit("host", n.host, entry.reason) if {
	count(data.site.protected.hosts) > 0
	some n in input.nodes
	entry := data.site.protected.hosts[n.host]
	n.name in command.operation_nodes
	not readable(entry, tier.operation)
}

operation_hits contains hit("host", h, entry.reason) if {
	count(data.site.protected.hosts) > 0
	some h in command.own_names(command.operation_words)
	entry := data.site.protected.hosts[h]
	not readable(entry, tier.operation)
}

operation_hits contains hit("node", n.name, entry.reason) if {
	input.command != null
	count(data.site.protected.nodes) > 0
	some n in input.nodes
	entry := data.site.protected.nodes[n.name]
	n.host in command.own_names(command.operation_words)
	not readable(entry, tier.operation)
}

operation_hits contains hit("host", h, entry.reason) if {
	some h in addresses
	entry := data.site.protected.hosts[h]
	not readable(entry, tier.operation)
}

operation_hits contains hit("service", s, entry.reason) if {
	count(data.site.protected.services) > 0
	some s in command.mentioned_services(command.operation_words)
	some entry in service_entries(s)
	on_nodes(entry, {input.target.node} | command.operation_nodes)
	not readable(entry, tier.operation)
}

named_hosts contains input.target.host if input.target != null

named_hosts contains input.http.host if input.http != null

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

on_nodes(entry, _) if "*" in entry.nodes

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
