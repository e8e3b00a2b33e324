# METADATA
# scope: package
# description: >-
#   May the result of an operation or a call go back to the client? The host finds secrets with
#   detectors. This package decides what to do with their hits. The host refuses a result if there
#   is no answer, or if the answer lacks an action for a detector that hit.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.result

import data.caponier.core.roles

# METADATA
# entrypoint: true
answer := {
	"schema": "caponier.returned/1",
	"actions": {name: action(name) | some name, _ in input.hits},
	"deny": [d | some d in denials],
} if {
	input.schema == "caponier.result/1"
}

# METADATA
# description: The patterns of the site, by detector.
# entrypoint: true
detectors := {name: d.pattern | some name, d in data.site.results.detectors}

# Records for undo go to nodes, and the results of the host's own calls are not returned to anybody.
action(_) := "allow" if {
	input.op == "undo_steps"
} else := "allow" if {
	input.principal.auth == "host"
}

action(name) := found if {
	input.op != "undo_steps"
	input.principal.auth != "host"
	otherwise := object.get(builtin, name, "refuse")
	found := object.get(data.site, ["results", "actions", name], otherwise)
}

# builtin are the host's detectors, with the actions if a site sets none. Some tools are meant to
# return tokens.
builtin := {"private_key": "mask", "password_hash": "mask", "token": "allow", "cloud": "allow"}

# The site's rules see the effective roles, as in other questions.
denials contains d if {
	some d in data.caponier.site.result.deny with input.principal.roles as effective
}

effective := [name | some name in roles.held]
