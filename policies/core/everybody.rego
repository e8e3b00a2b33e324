# Mistakes in the roles that everybody holds.
package caponier.core.lint

problems contains sprintf("everybody: there is no role %q", [name]) if {
	some name in data.site.everybody
	not data.site.roles[name]
}

problems contains problem if {
	some name in data.site.everybody
	ceiling := data.site.roles[name].ceiling
	ceiling != "green"
	problem := sprintf(
		"everybody: role %q goes up to %s; what everybody holds only reads: ceiling: green",
		[name, ceiling],
	)
}
