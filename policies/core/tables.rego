# METADATA
# scope: package
# description: >-
#   The tables of package derived. The host stores them under data.derived. Tests compute them each
#   time.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.tables

import data.caponier.core.derived

of := data.derived if {
	data.derived.required
} else := {
	"required": derived.required, "granting": derived.granting, "services": derived.services,
	"obligations": derived.obligations, "whole": derived.whole, "guests": derived.guests,
	"narrowed": derived.narrowed, "timed": derived.timed,
	"paths": derived.paths,
}

programs := data.derived.programs if {
	data.derived.programs
} else := derived.programs

runs := data.derived.runs if {
	data.derived.runs
} else := derived.runs
