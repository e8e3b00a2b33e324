# METADATA
# scope: package
# description: >-
#   Grants in a site's data that can never work, because of what the tools in the lock declare. The
#   host gives data.inventory.declares when a policy is loaded - by KIND:NAME the imports and
#   commands. The data can decide all the same.
# schemas:
#   - data.site: schema.site
package caponier.core.idle

import data.caponier.core.files
import data.caponier.core.lint
import data.caponier.core.listing
import data.caponier.core.operations.table
import data.caponier.core.tier

# Tools whose calls could reach an operation.
declares[key] := tool if {
	some key, tool in data.inventory.declares
	tier.ranks[data.site.tiers[key]] < 4
}

warnings contains sprintf("tiers/%s: is %s, and %s: %s", [key, is, why, then]) if {
	some key, _ in declares
	some [rank, why] in needs[key]
	is := data.site.tiers[key]
	rank > tier.ranks[is]
	then := "each call that comes to it is refused; give the tool that tier"
}

warnings contains problem if {
	some name in data.site.relaxed.tools
	some [rank, why] in needs[concat(":", ["tool", name])]
	rank == 3
	not spared(why)
	problem := sprintf(
		"relaxed/tools/%s: is yellow for the relaxed guests, and %s: %s",
		[name, why, "take it out of the list, or these calls are refused"],
	)
}

# needs are the minimum ranks of the tool's operations, each with its reason.
needs[key] contains [rank, sprintf("%s that it runs is %s", [c, tier.names[rank]])] if {
	some key, tool in declares
	some c in tool.commands
	rank := least(c)
}

needs[key] contains [3, "what it writes to a node's files is red"] if {
	some key, tool in declares
	some i in tool.imports
	table[i].action in files.changing
	not "stage" in tool.imports
}

entries := object.union(lint.entries, lint.owned)

# Where the site relaxes guests, what it adds to the grammar's tier does not hold for these.
least(c) := listing.rank(c, entries[c]) if {
	count(object.get(data.site, ["relaxed", "vmids"], [])) == 0
} else := tier.ranks[object.get(data.core.grammar.relaxed, c, entries[c].tier)]

spared(why) if {
	some c, _ in data.core.grammar.relaxed
	startswith(why, concat("", [c, " "]))
}

spared(why) if {
	some c, e in entries
	tier.ranks[e.tier] < 3
	startswith(why, concat("", [c, " that it runs"]))
}

# One role must grant everything that a call needs.
warnings contains problem if {
	some name, role in data.site.roles
	some said in role.tools
	key := key_of(said)
	tool := declares[key]
	some why in lacks(key, tool, role)
	problem := sprintf("roles/%s/tools/%s: %s: no call of it is allowed by this role", [
		name, said, why,
	])
}

key_of(said) := said if {
	contains(said, ":")
} else := concat(":", ["tool", said])

lacks(key, tool, role) := (imports | ceiling) | commands if {
	imports := {sprintf("it needs the import %s, which the role does not list", [i]) |
		some i in tool.imports
		not i in role.imports
	}
	is := data.site.tiers[key]
	ceiling := {sprintf("it is %s, and the role's ceiling is %s", [is, role.ceiling]) |
		tier.ranks[role.ceiling] < tier.ranks[is]
		not relaxed(key)
	}
	commands := {sprintf("of %s, which it runs, the role may run nothing", [told]) |
		own := {c | some c in tool.commands; c != "*"}
		count(own) > 0
		every c in own { not granted(role, c) }
		told := concat(", ", own)
	}
}

relaxed(key) if {
	count(data.site.relaxed.vmids) > 0
	trim_prefix(key, "tool:") in data.site.relaxed.tools
}

granted(role, _) if "*" in role.commands

granted(role, c) if c in role.commands

granted(role, c) if entries[c].group in role.commands
