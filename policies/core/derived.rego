# METADATA
# scope: package
# description: >-
#   Tables that depend on the site and the command grammar alone. The host evaluates this package
#   once when it loads a site, and decides with the values.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.derived

import data.caponier.core.approval
import data.caponier.core.check
import data.caponier.core.command
import data.caponier.core.files
import data.caponier.core.grammar
import data.caponier.core.guests as guests_of
import data.caponier.core.lint
import data.caponier.core.listing
import data.caponier.core.scope
import data.caponier.core.tier

# The checks that each kind of question requires.
required[kind] contains id if {
	some id
	some kind in check[id].asked
}

# The roles that list a tool, by its key such as tool:list_guests. A name without a kind is a tool.
granting[key] := {name | some name, role in data.site.roles; lists(role.tools, key)} if {
	some key, _ in data.site.tiers
}

lists(names, _) if "*" in names

lists(names, key) if key in names

lists(names, key) if {
	startswith(key, "tool:")
	trim_prefix(key, "tool:") in names
}

# The folders of the site's files and those of package files, each with a slash at its end, and the
# forms of secret paths as one pattern.
paths[direction] := folders(data.site.files[direction]) if some direction in ["read", "write"]

paths.unreadable := folders(files.unreadable)

paths.unwritable := folders(files.unwritable)

paths.secret := concat("|", files.secret)

folders(all) := {files.folder(p) | some p in all}

# The protected services, by the name that units are compared by.
services[unit] contains entry if {
	some entry in data.site.protected.services
	unit := command.unit(entry.service)
}

# The programs of which a role may run a command.
programs[name] := {binary |
	some binary, subs in lint.commands
	some id, group in subs
	some granted in role.commands
	granted in {"*", id, group}
} if {
	some name, role in data.site.roles
}

# The restricting keys of each role, and whether any role has hours.
narrowed[name] := scope.narrowed(role) if {
	some name, role in data.site.roles
}

default timed := false

timed if {
	some role in data.site.roles
	"hours" in object.keys(role)
}

# The commands that text for a node can contain.
runs := listing.runs

# The entries of the grammar whose tier does not depend on words, each with what command.measured
# gives for it without further words: by program and sub-command, and API calls by the shape of
# their path. "alone" says that there may be no words, "exact" that its operands are all needed and
# may be mixed with options.
plain[program][sub] := known(trim_space(concat(" ", [program, sub])), entry) if {
	some program, subs in data.core.grammar.commands
	not data.core.grammar.front[program]
	not data.core.grammar.depth[program]
	some sub, entry in subs
	only(program, sub)
	settled(trim_space(concat(" ", [program, sub])), entry)
}

shapes[program][method][shape] := known(concat(" ", [program, method, shape]), entry) if {
	some program, subs in data.core.grammar.commands
	not data.core.grammar.front[program]
	some method, api in subs
	api.api == true
	some shape, entry in api.paths
	settled(concat(" ", [program, method, shape]), entry)
}

known(id, entry) := {
	"measured": {
		"id": id, "group": entry.group, "tier": entry.tier, "rank": tier.ranks[entry.tier],
		"inside": false, "guest": [], "words": [], "own": false,
	},
	"operands": entry.operands, "options": entry.options,
	"alone": count([k | some k in entry.operands; not grammar.optional(k)]) == 0,
	"exact": count([1 | some key in ["gnu", "divider"]; entry[key]]) == 0,
}

# The first word is enough if no sub-command can follow it.
only(program, "") if {
	object.keys(data.core.grammar.commands[program]) == {""}
	not data.site.binaries[program]
	regex.match(`^[^ ]+$`, program)
}

only(_, sub) if sub != ""

settled(id, entry) if {
	is_string(entry.tier)
	not entry.required
	not entry.guest
	not entry.bare
	not entry.group in {"service", "transfer"}
	not data.site.commands[id]
	not data.site.commands[entry.group]
}

# The site's entries for guests by facts of their cluster, and the maximum age of these facts.
guests := {
	"raises": guests_of.raises, "max_age_s": guests_of.max_age_s, "lists": guests_of.lists,
	"configs": guests_of.configs,
}

# whole is true if the site's data has every key whose absence would allow more.
default whole := false

whole if count(lint.missing) == 0

# The part of a decision that is the same for all questions, by its log level.
obligations[log] := {
	"timeout_ms": data.site.limits.timeout_ms, "max_bytes": data.site.limits.output_bytes,
	"redact": data.site.redact, "channels": approval.channels, "approvers": approval.approvers,
	"needs": approval.one,
	"snapshot": {"vmids": [], "optional": false, "keep": 0, "days": 0},
	"undo": {"record": false, "optional": false, "days": 0, "max_bytes": 0}, "plan": false,
	"log": log, "argument": data.site.approval.argument,
} if {
	some log in ["info", "warn"]
}
