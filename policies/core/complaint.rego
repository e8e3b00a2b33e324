# METADATA
# scope: package
# description: Says which word of a refused command is in the way. It is asked only about commands that were refused.
# schemas:
#   - data.site: schema.site
package caponier.core.complaint

import data.caponier.core.grammar

about(call) := sprintf("%s has a word that a shell would expand", [quoted(call.argv[0])]) if {
	call.static != true
} else := sprintf("%s is not a command that policy knows", [quoted(call.argv[0])]) if {
	not grammar.commands(call.argv[0])
} else := sprintf("after %s, %s is not a sub-command or path that policy knows in full", [quoted(call.argv[0]), next(call.argv)]) if {
	not grammar.lookup(call.argv)
} else := sprintf("%s does not take %s; it takes %s", [quoted(found.id), concat(", ", bad), form(found.entry)]) if {
	found := grammar.lookup(call.argv)
	bad := wrong(call.argv, found)
	count(bad) > 0
} else := sprintf("%s has a word too few, too many or in the wrong place; it takes %s", [quoted(found.id), form(found.entry)]) if {
	not grammar.describe(call.argv)
	found := grammar.lookup(call.argv)
}

# form shows what an entry takes: operands by kind, then options.
form(entry) := concat(" ", array.concat([kind(k) | some k in entry.operands], [o | some o, _ in entry.options])) if {
	count(entry.operands) + count(entry.options) > 0
} else := "nothing more"

kind(k) := concat("|", k) if {
	is_array(k)
} else := upper(k)

next(argv) := concat(" ", [quoted(w) | some w in array.slice(argv, 1, 3)]) if {
	count(argv) > 1
} else := "the end"

wrong(argv, found) := {quoted(w) |
	some w in array.slice(argv, found.skip, count(argv))
	not fits(w, found.entry)
}

fits(w, entry) if entry.options[w]

fits("--", entry) if entry.divider == true

fits(w, entry) if {
	not startswith(w, "-")
	some kind in entry.operands
	grammar.is(plain(kind), w)
}

fits(w, entry) if {
	not startswith(w, "-")
	some kind in entry.options
	kind != "flag"
	grammar.is(kind, w)
}

fits(_, entry) if entry.guest

plain(kind) := trim_right(kind, "?*") if {
	is_string(kind)
} else := kind

# quoted shows a word so that it cannot pose as something else: printable ASCII, at most 60 characters.
quoted(w) := sprintf("%q", [substring(regex.replace(w, `[^ -~]`, "?"), 0, 60)])
