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

# answer gives the decision about the input as a question of this kind.
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

# allowed gives the decision where every check holds. It depends on less than one that refuses,
# which says why.
allowed(kind) := {
	"schema": "caponier.decision/1", "allow": true, "tier": tier.name, "failed": [], "deny": [],
	"confirm": false, "units": [], "lacks": [],
	"guests": {"vmids": [], "max_age_s": 0, "configs": false},
	"obligations": obligations,
} if {
	failed(kind) == set()
}

# failed gives the required checks that do not hold. A check that is undefined does not hold. An
# input that is no question of this kind, and a list of checks that is not whole, fail "schema".
failed(kind) := unmet if {
	input.schema == concat("", ["caponier.", kind, "/1"])
	required := tables.of.required[kind]
	"schema" in required
	met := [id | some id in required; check[id].ok == true]
	unmet := {id | count(met) < count(required); some id in required; not id in met}
} else := {"schema"}

# lacking gives what can be looked up, where such things are all that is missing.
lacking(unmet, id) := check[id].wanted if {
	id in unmet
	unmet - {"unit", "touched"} == set()
} else := set()

# unknown_guests are those whose facts would decide, since a person, where one can approve, and the
# node are all that could be missing besides.
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

# What binds the host when it executes. Zero is no tighter than the host's own limits.
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
