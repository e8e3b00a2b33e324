# Mistakes in the keys that restrict roles further.
package caponier.core.lint

import data.caponier.core.command
import data.caponier.core.files
import data.caponier.core.scope

problems contains problem if {
	some name, role in data.site.roles
	some s in role.services
	regex.match(`^.*\.[a-z]+$`, s)
	not command.suffixed(s) == s
	problem := sprintf(
		"roles/%s/services: %q ends in no kind of unit that systemd knows; write %s",
		[name, s, "the name alone, or with .service"],
	)
}

problems contains problem if {
	some name, role in data.site.roles
	some h in role.hosts
	not data.site.egress[h]
	problem := sprintf("roles/%s/hosts: no entry of egress is %q, so nothing reaches it", [name, h])
}

problems contains problem if {
	some name, role in data.site.roles
	some p in role.paths
	not files.clean(p)
	problem := sprintf("roles/%s/paths: %q is not an absolute path in its shortest form", [name, p])
}

# A role's path that shares nothing with the site's paths is most likely a mistake.
problems contains problem if {
	some name, role in data.site.roles
	some p in role.paths
	files.clean(p)
	not reaches_files(p)
	problem := sprintf(
		"roles/%s/paths: %q has nothing in common with files/read and files/write, %s",
		[name, p, "which bound all roles"],
	)
}

reaches_files(p) if {
	some list in data.site.files
	some listed in list
	files.under(p, listed)
}

reaches_files(p) if {
	some list in data.site.files
	some listed in list
	files.under(listed, p)
}

problems contains problem if {
	some name, role in data.site.roles
	scope.minutes(role.hours.from) == scope.minutes(role.hours.to)
	problem := sprintf(
		"roles/%s/hours: from and to are both %s; for whole days write from: %q, to: %q",
		[name, role.hours.to, "00:00", "24:00"],
	)
}
