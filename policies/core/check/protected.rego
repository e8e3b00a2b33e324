# METADATA
# scope: package
# description: >-
#   The question names nothing that the site protects, under any name. An entry may still allow
#   reads.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.protected

import data.caponier.core.check.guests as of_facts
import data.caponier.core.command
import data.caponier.core.guests
import data.caponier.core.inventory
import data.caponier.core.tables
import data.caponier.core.tier

asked := {"call", "operation", "visible"}

order := 0

ok if {
	is_object(data.site.protected.nodes)
	is_object(data.site.protected.vmids)
	is_object(data.site.protected.hosts)
	is_array(data.site.protected.services)
	hits == set()
}

hits contains [kind, name, entry.reason] if {
	some [kind, name] in touched
	entry := data.site.protected[kind][name]
	not readable(entry)
}

hits contains ["services", unit, entry.reason] if {
	data.site.protected.services != []
	some unit in units
	some entry in tables.of.services[unit]
	somewhere(entry.nodes)
	not readable(entry)
}

readable(entry) if {
	entry.reads == "allow"
	tier.rank == 1
}

somewhere(nodes) if "*" in nodes

somewhere(nodes) if {
	some n in nodes
	n in machines
}

# Everything that the question names in any way, as [kind, name]. Kinds that the site does not
# protect may be missing.
touched contains ["vmids", id] if some id in guests.named

touched contains ["nodes", n] if {
	data.site.protected.nodes != {}
	some n in machines
}

touched contains ["hosts", h] if {
	data.site.protected.hosts != {}
	some h in hosts
}

units contains command.unit(s) if some s in input.targets.services

# The names that the node itself has for the unit.
units contains command.unit(s) if some s in input.target.services

units contains unit if {
	guests.words != set()
	some unit in command.mentioned_services(guests.words)
}

# Every name of every machine: nodes in words and paths, and addresses in words of programs that
# only the site describes.
machines := inventory.also(inventory.named | mentioned)

mentioned contains n if some n in command.mentioned_nodes(guests.words)

mentioned contains n if {
	some text in guests.texts
	some n in split(text, "/")
}

mentioned contains n.name if {
	own := command.own_names(guests.words)
	count(own) > 0
	some n in input.nodes
	n.host in own
}

# An address names a machine too.
hosts contains h if some h in input.targets.hosts

hosts contains n.host if {
	some n in input.nodes
	n.name in machines
}

hosts contains h if some h in command.own_names(guests.words)

hosts contains input.target.host if input.target != null

hosts contains input.http.host if input.http != null

hosts contains a.ip if some a in input.target.addrs

hosts contains a.ip if some a in input.http.addrs

what := concat("; ", array.concat(
	[sprintf("%s %s is protected: %s", [kinds[kind], called(kind, name), reason]) |
		some [kind, name, reason] in hits
	],
	[sprintf("guest %s is protected by its %s: %s", [guests.label(id), means[kind], reason]) |
		some [id, kind, _, reason] in of_facts.guarded
	],
))

called(kind, name) := guests.label(name) if {
	kind == "vmids"
} else := name

kinds := {"vmids": "guest", "nodes": "node", "hosts": "host", "services": "service"}

means := {
	"tags": "tag", "pools": "pool", "names": "name", "nodes": "node",
	"protection": "protection in Proxmox",
}

rule := concat(", ", {sprintf("protected/%s/%s", [kind, name]) |
	some [kind, name, _] in hits
} | {sprintf("protected/%s/%s", [kind, name]) | some [_, kind, name, _] in of_facts.guarded})

works := "it stays refused, whatever is confirmed; choose another target"

remedy := concat("", [
	"Nothing in the call. The site may take the entry out of protected, or let reads pass with ",
	"reads: allow.",
])
