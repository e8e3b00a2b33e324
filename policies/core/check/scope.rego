# METADATA
# scope: package
# description: >-
#   A part of check role - if a role that grants the tool lists guests, services, hosts or paths, it
#   lists everything of that kind that the question names.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.scope

import data.caponier.core.roles
import data.caponier.core.say
import data.caponier.core.scope

asked := set()

order := 13

after := {"identity", "grant", "known", "tier"}

reached if {
	some name in roles.granting
	scope.covers(name)
}

what := say.cut(concat("; ", faults), 330)

# faults are the names that each role does not list.
faults contains sprintf("%s %s is not among the %s of role %s", [
	ones[kind], say.some_of(out, 3), kind, name,
]) if {
	some name in roles.granting
	some kind in scope.kinds
	listed := scope.of(name)[kind]
	out := scope.beyond(kind, listed)
	count(out) > 0
}

faults contains sprintf("above green, role %s acts only on what is named, and this names nothing", [
	name,
]) if {
	some name in roles.granting
	not scope.aimed(scope.of(name))
}

ones := {"guests": "guest", "services": "service", "hosts": "host", "paths": "path"}

kinds(name) := {kind | some kind in scope.kinds; scope.of(name)[kind]}

rule := concat(", ", {sprintf("roles/%s/%s", [name, kind]) |
	some name in roles.granting
	some kind in kinds(name)
})

works := sprintf("what they list: %s", [say.some_of(listed, 8)]) if {
	count(listed) > 0
} else := "nothing: they list none"

listed contains v if {
	some name in roles.granting
	some kind in kinds(name)
	some v in scope.of(name)[kind]
}

remedy := "In the site's data: roles/NAME/guests, services, hosts or paths."
