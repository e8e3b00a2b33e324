# METADATA
# scope: package
# description: >-
#   A call whose plan was approved does nothing above green except the steps of the plan, in their
#   order.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.planned

import data.caponier.core.tables
import data.caponier.core.tier

asked := {"operation", "plan"}

order := 48

# For a command that policy does not know, another check has a better reason.
after := {id | some id in tables.of.required.operation} - {"planned", "unit", "touched"}

ok if {
	input.schema == "caponier.operation/1"
	tier.rank == 1
}

ok if {
	input.schema == "caponier.operation/1"
	input.planning == true
}

# The facts of an operation are decided with the operation itself.
ok if input.phase == "lookup"

# If a person approved the call, there is a plan. All other calls may run without one.
ok if {
	input.plan == null
	input.parent.confirmation.state in {"none", "argument"}
}

ok if {
	input.plan.next == true
	input.plan.changed == ""
}

# The site lets people approve plans that end early. Operations after the last step are then limited
# like those of a call without a plan, to the declared commands and the call's targets.
ok if {
	input.plan.complete == false
	input.plan.left == false
	data.site.approval.incomplete_plans == true
}

# Each step was decided when the call was planned.
ok if {
	input.schema == "caponier.plan/1"
	every s in input.steps { s.allowed == true }
	whole
}

whole if input.complete == true

whole if data.site.approval.incomplete_plans == true

what := concat("", [
	sprintf("step %d of the plan, %s, is refused: ", [first + 1, refused.op]),
	concat(", ", refused.failed),
]) if {
	first := min({i | some i, s in input.steps; not s.allowed})
	refused := input.steps[first]
} else := sprintf("the plan is not complete: %s", [input.ends]) if {
	input.schema == "caponier.plan/1"
} else := concat("", [input.plan.changed, ": plan the call again"]) if {
	input.plan.changed != ""
} else := "the plan that was approved has no more steps" if {
	input.plan.left == false
} else := sprintf("the approved plan has another next step: %s", [input.plan.want])

rule := "the plan of this call"

works := "a new call, which is planned and approved anew"

remedy := concat("", [
	"Nothing in the site's data, unless the plan is incomplete: approval/incomplete_plans. A tool ",
	"that does one thing when it is planned and another when it runs has a defect, or worse.",
])
