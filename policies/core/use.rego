# METADATA
# scope: package
# description: >-
#   The grants that an allowed question used. It decides nothing. It shows which rights a principal
#   needs, and which entries of a site's data nobody uses.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.use

import data.caponier.core.command
import data.caponier.core.files
import data.caponier.core.inventory
import data.caponier.core.lint
import data.caponier.core.roles
import data.caponier.core.scope
import data.caponier.core.tier

# of contains what one role must have for the question, and the roles that have it.
of := {
	"tool": key, "tier": tier.name, "roles": sort(roles.clear), "nodes": sort(inventory.named),
	"commands": sort({d.id | some d in roles.described}), "entries": sort(entries),
	"named": {kind: sort(all) | some kind, all in named}, "pointed": pointed,
}

# key is the tool in the form that a role lists.
key := input.tool.name if {
	input.kind == "tool"
} else := tier.key

# entries are the paths of the used entries in the site's data, each as an array.
entries contains ["tiers", tier.key]

entries contains ["principals", input.principal.id]

entries contains ["principals", input.principal.id, "auth", input.principal.auth]

entries contains ["principals", input.principal.id, "roles", name] if some name in roles.clear

entries contains [place, name] if {
	some name in roles.clear
	some place in ["roles", "everybody", "claimable_roles"]
}

entries contains ["roles", name, "ceiling", tier.name] if some name in roles.clear

entries contains ["roles", name, "tools", t] if {
	some name in roles.clear
	some t in data.site.roles[name].tools
	t in {"*", key}
}

entries contains ["roles", name, "imports", i] if {
	some name in roles.clear
	some i in input.tool.imports
}

entries contains ["roles", name, "nodes", n] if {
	some name in roles.clear
	some n in data.site.roles[name].nodes
	n in ({"*"} | inventory.named)
	count(inventory.named) > 0
}

entries contains ["roles", name, "commands", c] if {
	some name in roles.clear
	some c in data.site.roles[name].commands
	some d in roles.described
	c in {"*", d.id, d.group}
}

# A role may list either form: nginx or nginx.service.
entries contains ["roles", name, kind, v] if {
	some name in roles.clear
	some kind in scope.kinds
	some v in data.site.roles[name][kind]
	some used in named[kind]
	reaches(kind, used, v)
}

entries contains ["roles", name, "hours", "days", day] if {
	some name in roles.clear
	some i, d in scope.days
	some [from, to] in scope.of(name).hours
	floor(from / 1440) == i
	some m in [scope.moment, scope.moment + scope.week]
	from <= m
	m < to
	day := d.key
}

named := {
	"guests": scope.named_guests, "services": scope.named_services, "hosts": scope.named_hosts,
	"paths": scope.named_paths,
}

# pointed is true if the role may list guests or services; above green it then acts only on named
# ones.
default pointed := false

pointed if scope.pointed

reaches("paths", used, v) if files.under(used, v)

reaches(kind, used, v) if {
	kind != "paths"
	used == scope.one(kind, v)
}

entries contains ["cluster_nodes", n] if some n in inventory.named

entries contains ["relaxed", "vmids", v] if {
	tier.own > 1
	some v in guests
}

entries contains ["relaxed", "tools", input.tool.name] if {
	tier.tool == 3
	tier.base == 2
}

entries contains ["files", "read", p] if {
	some p in data.site.files.read
	some path in paths
	files.under(path, p)
}

entries contains ["files", "write", p] if {
	some p in data.site.files.write
	some path in paths
	files.under(path, p)
}

entries contains ["egress", h] if some h in hosts

entries contains ["binaries", program, sub] if {
	some program, subs in data.site.binaries
	some sub, _ in subs
	some d in roles.described
	d.id == trim_space(concat(" ", [program, sub]))
	lint.owned[d.id]
}

guests contains v if some v in input.targets.vmids

guests contains v if some v in command.vmids(command.operation_words)

paths contains p if some p in input.targets.paths

paths contains input.file.path if is_string(input.file.path)

paths contains p if some p in command.paths(command.operation_words, "readpath")

paths contains p if some p in command.paths(command.call_words, "readpath")

hosts contains h if some h in input.targets.hosts

hosts contains input.http.host if is_string(input.http.host)
