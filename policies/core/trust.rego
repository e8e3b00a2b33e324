# METADATA
# scope: package
# description: >-
#   Who may sign which plugin. The host gives data.module when a module is to be locked or served -
#   its name, its imports, the signers whose key made a signature over its bytes, and the identities
#   that a certificate gives to one. The host verified both.
# schemas:
#   - data.site: schema.site
package caponier.core.trust

# required is true if this site accepts only signed plugins. Otherwise it accepts everything that
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

# signers are the site's signers that signed the module, with a key or with a certificate.
signers contains who if {
	some who in data.module.signers
	data.site.plugins.trust[who].keys
}

signers contains who if {
	some identity in data.site.plugins.trust[who].identities
	some certified in data.module.identities
	identity.issuer == certified.issuer
	covers(identity.subject, certified.subject)
}

# may are the signers that may sign this name with these imports.
may contains who if {
	some who in signers
	names(who)
	count(over(who)) == 0
}

names(who) if {
	some pattern in data.site.plugins.trust[who].plugins
	covers(pattern, data.module.name)
}

# A pattern is a whole text, or the beginning of a text followed by a star.
covers(pattern, name) if pattern == name

covers(pattern, name) if {
	endswith(pattern, "*")
	startswith(name, trim_suffix(pattern, "*"))
}

# over are the imports that the signer may not sign for.
over(who) := {i |
	some i in data.module.imports
	not i in data.site.plugins.trust[who].imports
}

reasons contains "no signer in plugins.trust has signed it" if {
	data.module
	count(signers) == 0
	count(object.get(data.module, "identities", [])) == 0
}

# Anybody can get a certificate, so it counts only if the site lists its identity.
reasons contains msg if {
	count(signers) == 0
	some certified in data.module.identities
	msg := sprintf("plugins.trust has no signer with the identity %s of %s", [
		certified.subject,
		certified.issuer,
	])
}

reasons contains sprintf("%s may not sign a plugin %q", [who, data.module.name]) if {
	some who in signers
	not names(who)
}

reasons contains msg if {
	some who in signers
	names(who)
	count(over(who)) > 0
	msg := sprintf("%s may not sign a plugin that imports %s", [
		who,
		concat(", ", sort(over(who))),
	])
}
