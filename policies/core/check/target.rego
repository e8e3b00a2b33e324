# METADATA
# scope: package
# description: Every kind of target that the tool declares is there, and every target is in its one canonical form.
# schemas:
#   - input: schema.input
#   - data.site: schema.site
package caponier.core.check.target

import data.caponier.core.files

ok if {
	count(missing) == 0
	count(malformed) == 0
}

missing contains kind if {
	some kind in input.tool.target_kinds
	not present(kind)
}

present("commands") if count(input.commands) > 0

present(kind) if count(input.targets[kind]) > 0

malformed contains v if {
	some kind, form in forms
	some v in input.targets[kind]
	not regex.match(form, v)
}

malformed contains p if {
	some kind in {"paths", "guest_paths"}
	some p in input.targets[kind]
	not files.clean(p)
}

forms := {
	"vmids": `^[1-9][0-9]{2,8}$`,
	"nodes": `^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$`,
	"services": `^[a-z0-9][a-z0-9:_.@-]{0,199}$`,
	"hosts": `^[a-z0-9:][a-z0-9:.-]{0,252}$`,
}

why := concat(", ", missing | malformed)
