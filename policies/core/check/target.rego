# METADATA
# scope: package
# description: Every kind of target that the tool declares is there, and every target is in its one canonical form.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.target

import data.caponier.core.files

ok if {
	whole
	count(missing) == 0
	count(malformed) == 0
}

# Lists, all of them: in anything else, "for every target" would hold for none.
whole if {
	is_array(input.targets.nodes)
	is_array(input.targets.vmids)
	is_array(input.targets.services)
	is_array(input.targets.hosts)
	is_array(input.targets.paths)
	is_array(input.targets.guest_paths)
	is_array(input.targets.local_paths)
	is_array(input.nodes)
	is_array(input.commands)
}

missing contains kind if {
	some kind in input.tool.target_kinds
	not present(kind)
}

present("commands") if filled(input.commands)

present(kind) if filled(input.targets[kind])

filled(list) if {
	is_array(list)
	count(list) > 0
}

malformed contains sprintf("%v", [v]) if {
	some kind, form in forms
	some v in input.targets[kind]
	not formed(form, v)
}

malformed contains sprintf("%v", [p]) if {
	some kind in {"paths", "guest_paths"}
	some p in input.targets[kind]
	not files.clean(p)
}

formed(form, v) if {
	is_string(v)
	regex.match(form, v)
}

forms := {
	"vmids": `^[1-9][0-9]{2,8}$`,
	"nodes": `^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$`,
	"services": `^[a-z0-9][a-z0-9:_.@-]{0,199}$`,
	"hosts": `^[a-z0-9:][a-z0-9:.-]{0,252}$`,
}

why := concat(", ", missing | malformed)
