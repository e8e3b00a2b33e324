# METADATA
# scope: package
# description: >-
#   Nothing that the site protects is touched, by whatever name it is reached. An entry may still
#   allow reading.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.protected

import data.caponier.core.command
import data.caponier.core.files
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

# Everything that the question names, as [kind, name], however it names it. What a site does not
# protect at all need not be found.
touched contains ["vmids", id] if some id in input.targets.vmids

touched contains ["vmids", id] if {
	words != set()
	some id in command.mentioned_vmids(words)
}

# A guest's number in a path, or in a unit such as pve-container@103, is that guest.
touched contains ["vmids", id] if {
	some text in texts
	some id in command.numbers(text)
}

touched contains ["nodes", n] if {
	data.site.protected.nodes != {}
	some n in machines
}

touched contains ["hosts", h] if {
	data.site.protected.hosts != {}
	some h in hosts
}

units contains command.unit(s) if some s in input.targets.services

# As the node itself calls the unit.
units contains command.unit(s) if some s in input.target.services

units contains unit if {
	words != set()
	some unit in command.mentioned_services(words)
}

# The words of commands by kind. A call's text for the inside of a guest is not among them.
words := command.operation_words if {
	input.schema == "caponier.operation/1"
} else := set() if {
	input.commands == []
} else := command.call_words if {
	input.schema == "caponier.call/1"
} else := set()

texts contains p if some p in input.targets.paths

texts contains s if some s in input.targets.services

texts contains p if {
	some p in [input.file.path, input.file.real_path]
	is_string(p)
	not files.staged(p)
}

# Every name of every machine: by node, in words and paths, and by address in words of programs that
# only the site describes.
machines := inventory.also(inventory.named | mentioned)

mentioned contains n if some n in command.mentioned_nodes(words)

mentioned contains n if {
	some text in texts
	some n in split(text, "/")
}

mentioned contains n.name if {
	own := command.own_names(words)
	count(own) > 0
	some n in input.nodes
	n.host in own
}

# A machine is known by its address too.
hosts contains h if some h in input.targets.hosts

hosts contains n.host if {
	some n in input.nodes
	n.name in machines
}

hosts contains h if some h in command.own_names(words)

hosts contains input.target.host if input.target != null

hosts contains input.http.host if input.http != null

hosts contains a.ip if some a in input.target.addrs

hosts contains a.ip if some a in input.http.addrs

what := concat("; ", [sprintf("%s %s is protected: %s", [kinds[kind], name, reason]) |
	some [kind, name, reason] in hits
])

kinds := {"vmids": "guest", "nodes": "node", "hosts": "host", "services": "service"}

rule := concat(", ", {sprintf("protected/%s/%s", [kind, name]) | some [kind, name, _] in hits})

works := "it stays refused, whatever is confirmed; choose another target"

remedy := concat("", [
	"Nothing in the call. The site may take the entry out of protected, or let reads pass with ",
	"reads: allow.",
])
