# METADATA
# scope: package
# description: >-
#   The text of a refusal - what was refused, by which rule and entry, and what would work. Words of
#   the caller are quoted, never inserted as text.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.reasons

import data.caponier.core.check
import data.caponier.core.say

# told leaves out failed checks that another failed check causes, and names the missing part of a
# role.
told(failed) := causes if {
	named := {id | some f in failed; some id in blamed(f)}
	causes := {id | some id in named; count(after(id) & named) == 0}
	count(causes) > 0
} else := failed

blamed(id) := check[id].blames if {
	count(check[id].blames) > 0
} else := {id}

after(id) := check[id].after - {id} if {
	check[id].after
} else := set()

# of are the reasons, the most useful first, as many as fit into a readable refusal.
of(failed) := [r |
	all := [{"id": id, "msg": message(id)} | some [_, id] in ranked(failed)]
	some i, r in all
	fits(all, i)
]

fits(_, 0)

fits(all, i) if {
	i > 0
	sum([count(r.msg) | some j, r in all; j <= i]) <= 520
}

# The site's own rules have their own messages.
ranked(failed) := sort([[order(id), id] | some id in failed; id != "site"])

order(id) := check[id].order if {
	is_number(check[id].order)
} else := 99

message(id) := concat(" · ", [
	say.cut(what(id), 330), say.cut(rule(id), 80), say.cut(works(id), 160),
])

what(id) := check[id].what if {
	is_string(check[id].what)
} else := sprintf("check %s did not hold", [id])

rule(id) := check[id].rule if {
	is_string(check[id].rule)
} else := sprintf("check %s", [id])

works(id) := check[id].works if {
	is_string(check[id].works)
} else := "ask the operator"

# What in the site's data or the host would satisfy a check, for policy explain.
remedies[id] := check[id].remedy
