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
import data.caponier.core.lint
import data.caponier.core.listing

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

# The protected services, by the name that units are compared by.
services[unit] contains entry if {
	some entry in data.site.protected.services
	unit := command.unit(entry.service)
}

# The programs of which a role may run something.
programs[name] := {binary |
	some binary, subs in lint.commands
	some id, group in subs
	some granted in role.commands
	granted in {"*", id, group}
} if {
	some name, role in data.site.roles
}

# The commands that a text for a node can hold.
runs := listing.runs

# whole says that the site's data has every key whose absence would widen something.
default whole := false

whole if count(lint.missing) == 0

# The part of a decision that is the same for all questions.
obligations := {
	"timeout_ms": data.site.limits.timeout_ms, "max_bytes": data.site.limits.output_bytes,
	"redact": data.site.redact, "channels": approval.channels, "approvers": approval.approvers,
	"snapshot": {"vmids": [], "optional": false, "keep": 0, "days": 0},
	"undo": {"record": false, "optional": false, "days": 0, "max_bytes": 0}, "plan": false,
}
