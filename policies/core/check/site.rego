# METADATA
# scope: package
# description: No rule of the site refuses the question.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.site

import data.caponier.core.roles

asked := {"call", "operation", "plan"}

order := 1

ok if denials == set()

# The site's rules see the effective roles, from the site and the credential together.
denials contains d if {
	input.schema == "caponier.call/1"
	input.principal.roles == effective
	some d in data.caponier.site.call.deny
}

denials contains d if {
	input.schema == "caponier.call/1"
	input.principal.roles != effective
	some d in data.caponier.site.call.deny with input.principal.roles as effective
}

denials contains d if {
	input.schema == "caponier.operation/1"
	input.principal.roles == effective
	some d in data.caponier.site.operation.deny
}

denials contains d if {
	input.schema == "caponier.operation/1"
	input.principal.roles != effective
	some d in data.caponier.site.operation.deny with input.principal.roles as effective
}

denials contains d if {
	input.schema == "caponier.plan/1"
	some d in data.caponier.site.plan.deny with input.principal.roles as effective
}

effective := [name | some name in roles.held]

remedy := "The site's own rules: the deny entries name them."
