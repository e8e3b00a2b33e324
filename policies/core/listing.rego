# METADATA
# scope: package
# description: >-
#   The command grammar as people read it: every entry with what it takes and the tier that it has
#   here.
# schemas:
#   - data.site: schema.site
package caponier.core.listing

import data.caponier.core.complaint
import data.caponier.core.lint
import data.caponier.core.tier

commands contains shown(id, e, false) if some id, e in lint.entries

commands contains shown(concat(" ", [w | some w in [binary, sub]; w != ""]), e, true) if {
	some binary, subs in data.site.binaries
	some sub, e in subs
}

shown(id, e, own) := {
	"name": id, "group": e.group, "tier": name_of(rank(id, e)), "site": own,
	"source": object.get(e, "source", ""), "operands": [complaint.kind(k) | some k in e.operands],
	"options": {o: value(k) | some o, k in e.options}, "required": object.get(e, "required", []),
}

rank(id, e) := max({tier.ranks[e.tier]} | {tier.ranks[data.site.commands[k].tier] |
	some k in {id, e.group}
})

name_of(n) := [t | some t, r in tier.ranks; r == n][0]

value(k) := "" if {
	k in {"flag", "flag*"}
} else := complaint.kind(k)
