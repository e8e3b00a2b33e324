# METADATA
# scope: package
# description: >-
#   Names the word for which a command is refused. It is evaluated only for refused commands.
# schemas:
#   - data.site: schema.site
package caponier.core.complaint

import data.caponier.core.grammar
import data.caponier.core.say

about(call) := sprintf("%s has a word that a shell would expand", [say.quoted(call.argv[0])]) if {
	call.static != true
} else := sprintf("%s is not a command that policy knows", [say.quoted(call.argv[0])]) if {
	not grammar.commands(call.argv[0])
} else := sprintf("after %s, %s is not a sub-command or path that policy knows in full", [
	say.quoted(call.argv[0]), next(call.argv),
]) if {
	not has_entry(call.argv)
} else := sprintf("%s does not take %s; it takes %s", [
	say.quoted(found.id), concat(", ", bad), form(found.entry),
]) if {
	found := grammar.lookup(call.argv)
	bad := wrong(found)
	count(bad) > 0
} else := sprintf("%s has a word too few, too many or in the wrong place; it takes %s", [
	say.quoted(found.id), form(found.entry),
]) if {
	not grammar.describe(call.argv)
	found := grammar.lookup(call.argv)
}

# has_entry is false if only the program has an entry, and the next word should be a sub-command.
has_entry(argv) if {
	found := grammar.lookup(argv)
	not misses_sub_command(argv, found)
}

misses_sub_command(argv, found) if {
	found.id == argv[0]
	count(grammar.commands(argv[0])) > 1
	count(found.entry.operands) == 0
	some w in found.rest
	not startswith(w, "-")
}

# form shows the words of an entry: operands by kind, then options with their values.
form(entry) := short(takes(entry))

takes(entry) := concat(" ", array.concat(operands, options)) if {
	operands := [kind(k) | some k in entry.operands]
	options := [shown(o, k) | some o, k in entry.options]
	count(operands) + count(options) > 0
} else := "nothing more"

shown(o, k) := sprintf("%s %s", [o, kind(k)]) if {
	not k in {"flag", "flag*"}
	not endswith(o, "=")
} else := concat("", [o, kind(k)]) if {
	endswith(o, "=")
} else := o

short(text) := text if {
	count(text) <= 200
} else := sprintf("%s … (caponier policy grammar shows all)", [substring(text, 0, 200)])

kind(k) := concat("|", k) if {
	is_array(k)
} else := upper(k)

next(argv) := concat(" ", [say.quoted(w) | some w in array.slice(argv, 1, 3)]) if {
	count(argv) > 1
} else := "the end"

wrong(found) := {say.quoted(w) |
	some w in found.rest
	not fits(w, found.entry)
}

fits(w, entry) if entry.options[w]

fits(w, entry) if {
	entry.gnu == true
	startswith(w, "-")
	grammar.option(w, null, entry.options)
}

fits(w, entry) if {
	entry.gnu == true
	grammar.next_kind(w, entry.options)
}

fits("--", entry) if entry.gnu == true

# The value of an option that begins with a hyphen is a number.
fits(w, entry) if {
	entry.gnu == true
	regex.match(`^-[0-9]`, w)
	some kind in entry.options
	grammar.is(grammar.bare_kind(kind), w)
}

fits("--", entry) if entry.divider == true

fits(w, entry) if {
	not startswith(w, "-")
	some kind in entry.operands
	grammar.first_of(plain(kind), w)
}

fits(w, entry) if {
	not startswith(w, "-")
	some kind in entry.options
	not kind in {"flag", "flag*"}
	grammar.is(grammar.bare_kind(kind), w)
}

fits(_, entry) if entry.guest

plain(kind) := trim_right(kind, "?*") if {
	is_string(kind)
} else := kind
