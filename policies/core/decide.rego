# METADATA
# scope: package
# description: >-
#   Answers a question. It is allowed when every check that is required for its kind holds.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.decide

import data.caponier.core.approval
import data.caponier.core.check
import data.caponier.core.guests
import data.caponier.core.reasons
import data.caponier.core.snapshot
import data.caponier.core.tables
import data.caponier.core.tier
import data.caponier.core.undo

# answer is the decision on the input as a question of this kind.
answer(kind) := decision if {
	decision := allowed(kind)
} else := {
	"schema": "caponier.decision/1", "allow": false, "tier": tier.name,
	"failed": [id | some id in told],
	"deny": array.concat(reasons.of(told), [d | some d in check.site.denials]),
	"confirm": unmet == {"confirmation"},
	"units": [u | some u in lacking(unmet, "unit")],
	"lacks": [k | some k in lacking(unmet, "touched")],
	"guests": {
		"vmids": [id | some id in unknown_guests(unmet)],
		"max_age_s": tables.of.guests.max_age_s, "configs": configs,
	},
	"obligations": obligations,
} if {
	unmet := failed(kind)
	told := reasons.told(unmet)
}

# allowed is the decision if every check holds. It depends on less of the input than a refusal,
# which contains reasons.
allowed(kind) := {
	"schema": "caponier.decision/1", "allow": true, "tier": tier.name, "failed": [], "deny": [],
	"confirm": false, "units": [], "lacks": [],
	"guests": {"vmids": [], "max_age_s": 0, "configs": false},
	"obligations": obligations,
} if {
	failed(kind) == set()
}

# failed are the required checks that do not hold. An undefined check does not hold. If the input is
# not a question of this kind, or the list of checks is incomplete, "schema" fails.
failed(kind) := unmet if {
	input.schema == concat("", ["caponier.", kind, "/1"])
	required := tables.of.required[kind]
	"schema" in required
	met := [id | some id in required; check[id].ok == true]
	unmet := {id | count(met) < count(required); some id in required; not id in met}
} else := {"schema"}

# lacking contains what the host can look up, if nothing else is missing.
lacking(unmet, id) := check[id].wanted if {
	id in unmet
	unmet - {"unit", "touched"} == set()
} else := set()

# unknown_guests are the guests whose facts decide the question, because at most an approval and
# facts of the node could be missing in addition.
unknown_guests(unmet) := check.guests.wanted if {
	"guests" in unmet
	check.guests.guarded == set()
	unmet - ({"guests", "unit", "touched"} | waits) == set()
} else := set()

default configs := false

configs if guests.configured

waits := {"confirmation"} if {
	approval.possible
} else := set()

# The obligations of the host when it executes. Zero keeps the host's own limits.
obligations := object.union(
	tables.of.obligations[log],
	{
		"snapshot": snapshot.first, "undo": undo.kept, "plan": undo.planned_first,
		"needs": approval.needed,
	},
) if {
	keeps
} else := tables.of.obligations[log]

keeps if data.site.snapshot

keeps if data.site.undo

keeps if data.site.plan_first

keeps if data.site.approval.needs

log := "info" if {
	tier.rank == 1
} else := "warn"
