# METADATA
# scope: package
# description: >-
#   Every kind of target that the tool declares is present, and every target is in canonical form.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.target

import data.caponier.core.files
import data.caponier.core.say

asked := {"call"}

order := 20

# All of them must be lists: for any other value, "for every target" would be true without a target.
ok if {
	is_array(input.targets.nodes)
	is_array(input.targets.vmids)
	is_array(input.targets.services)
	is_array(input.targets.hosts)
	is_array(input.targets.paths)
	is_array(input.targets.guest_paths)
	is_array(input.targets.local_paths)
	is_array(input.nodes)
	is_array(input.commands)
	missing == set()
	malformed == set()
}

missing contains kind if {
	some kind in input.tool.target_kinds
	not present(kind)
}

present(kind) if {
	is_array(input.targets[kind])
	input.targets[kind] != []
}

present("trees") if input.targets.paths != []

present("commands") if {
	is_array(input.commands)
	input.commands != []
}

malformed contains v if {
	some kind, form in {
		"vmids": `^[1-9][0-9]{2,8}$`, "nodes": `^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$`,
		"services": `^[a-z0-9][a-z0-9:_.@-]{0,199}$`, "hosts": `^[a-z0-9:][a-z0-9:.-]{0,252}$`,
	}
	some v in input.targets[kind]
	is_string(v)
	not regex.match(form, v)
}

malformed contains sprintf("%v", [v]) if {
	some list in input.targets
	some v in list
	not is_string(v)
}

malformed contains p if {
	some kind in ["paths", "guest_paths"]
	some p in input.targets[kind]
	not files.clean(p)
}

what := sprintf("targets are missing: %s", [say.some_of(missing, 5)]) if {
	count(missing) > 0
} else := sprintf("targets are not in their canonical form: %s", [say.some_of(quoted, 3)])

quoted := {say.quoted(v) | some v in malformed}

rule := "the tool's declared targets"

works := "name each target that the tool's schema asks for, in full"

remedy := "Name each target that the tool declares, in its canonical form."
