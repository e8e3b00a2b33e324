# METADATA
# scope: package
# description: >-
#   Who may sign which plugin. The host gives data.module when a module is to be locked or served -
#   its name, its imports, and the signers whose signature over its bytes was verified.
# schemas:
#   - data.site: schema.site
package caponier.core.trust

# required says that this site takes signed plugins only. One that says nothing of it takes what
# its lock lists.
default required := false

required if data.site.plugins.trust

default decision := {"allow": false, "by": "", "msg": "there is no module to decide about"}

decision := {"allow": true, "by": "", "msg": ""} if {
	not required
	data.module
} else := {"allow": true, "by": min(may), "msg": ""} if {
	count(may) > 0
} else := {"allow": false, "by": "", "msg": concat("; ", sort(reasons))} if {
	count(reasons) > 0
}

# may are the signers who may sign this name with these imports.
may contains who if {
	some who in data.module.signers
	names(who)
	count(over(who)) == 0
}

names(who) if {
	some pattern in data.site.plugins.trust[who].plugins
	covers(pattern, data.module.name)
}

# A pattern is a name, or the beginning of names with a star.
covers(pattern, name) if pattern == name

covers(pattern, name) if {
	endswith(pattern, "*")
	startswith(name, trim_suffix(pattern, "*"))
}

# over are the imports that the signer may not give to a plugin.
over(who) := {i |
	some i in data.module.imports
	not i in data.site.plugins.trust[who].imports
}

reasons contains "nobody has signed it whom plugins.trust lists" if {
	count(data.module.signers) == 0
}

reasons contains sprintf("%s may not sign a plugin %q", [who, data.module.name]) if {
	some who in data.module.signers
	not names(who)
}

reasons contains msg if {
	some who in data.module.signers
	names(who)
	count(over(who)) > 0
	msg := sprintf("%s may not sign a plugin that imports %s", [
		who,
		concat(", ", sort(over(who))),
	])
}
