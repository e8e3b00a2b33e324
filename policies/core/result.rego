# METADATA
# scope: package
# description: >-
#   May what came of an operation or a call go back to the client? The host finds secrets with
#   detectors; here stands what becomes of their hits. The host refuses a result when it has no
#   answer, or one without an action for each detector that hit.
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

# What the host recorded to take a call back goes to nodes, and the results of the host's own calls
# go to nobody.
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

# builtin are the detectors of the host, and what becomes of their hits where a site says nothing.
# Tokens are what some tools are asked for.
builtin := {"private_key": "mask", "password_hash": "mask", "token": "allow", "cloud": "allow"}

# The site's rules see the roles that hold here, as in other questions.
denials contains d if {
	some d in data.caponier.site.result.deny with input.principal.roles as effective
}

effective := [name | some name in roles.held]
