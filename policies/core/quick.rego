# METADATA
# scope: package
# description: >-
#   The commands that tools run most often, with the tables derived.plain and derived.shapes, which
#   are made from the grammar and the site. They have the same result as package command, which
#   reads word by word.
# schemas:
#   - data.site: schema.site
package caponier.core.quick

import data.caponier.core.grammar
import data.caponier.core.tables

# of is the value of command.measured for a command of which the tables contain everything except
# the words. It is undefined for any other.
of(argv) := found.measured if {
	found := tables.of.plain[argv[0]][""]
	found.alone == true
	count(argv) == 1
} else := filled(found, [], array.slice(argv, 2, count(argv))) if {
	found := tables.of.plain[argv[0]][argv[1]]
	argv[1] != ""
} else := filled(found, path.words, array.slice(argv, 3, count(argv))) if {
	shapes := tables.of.shapes[argv[0]][argv[1]]
	path := grammar.api_path(argv[2])
	found := shapes[path.shape]
}

filled(found, before, rest) := object.union(found.measured, {"words": words}) if {
	found.exact == true
	not strings.any_prefix_match(rest, "-")
	words := array.concat(before, grammar.exact(found.operands, rest))
} else := object.union(found.measured, {"words": words}) if {
	found.exact == true
	parsed := grammar.options_of(rest, found.options)
	plain := grammar.exact(found.operands, parsed.rest)
	words := array.concat(before, array.concat(plain, parsed.values))
}
