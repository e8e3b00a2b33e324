# METADATA
# scope: package
# description: Reads argv by the command grammar. What the grammar does not describe in every word has no description.
# schemas:
#   - data.site: schema.site
package caponier.core.grammar

tables := data.core.grammar

# describe gives id, group, tier rank, the entry and its words by kind: [[kind, word], …].
describe(argv) := {
	"id": found.id, "group": found.entry.group, "tier": found.entry.tier, "inside": object.get(found.entry, "guest", false),
	"words": array.concat(found.words, array.concat(arguments, values)), "guest": guest,
} if {
	found := lookup(argv)
	words := array.slice(argv, found.skip, count(argv))
	end := divider(words, found.entry)
	before := array.slice(words, 0, end)
	options_ok(before, found.entry.options)
	every needed in object.get(found.entry, "required", []) { needed in array.slice(words, 0, end + 1) }
	guest := guest_words(words, end, found.entry)
	values := option_values(before, found.entry.options)
	arguments := typed(found.entry.operands, operands(words, before, end, found.entry))
}

# lookup finds the entry by the first one to three words, the longest first, and an API call by the shape of its path.
lookup(argv) := {"id": concat(" ", array.slice(argv, 0, n)), "entry": entry, "skip": n, "words": []} if {
	n := max([m | some m in [1, 2, 3, 4]; entry_at(argv, m)])
	entry := entry_at(argv, n)
	not entry.api
} else := {"id": concat(" ", [argv[0], argv[1], shape]), "entry": entry, "skip": 3, "words": segments} if {
	method := commands(argv[0])[argv[1]]
	method.api == true
	shape := api_shape(argv[2])
	entry := method.paths[shape]
	segments := api_words(argv[2])
	every pair in segments { is(pair[0], pair[1]) }
}

# A word with a space in it could look like two words of a key, so it is never one of them.
entry_at(argv, n) := commands(argv[0])[concat(" ", array.slice(argv, 1, n))] if {
	count(argv) >= n
	every w in array.slice(argv, 0, n) { not contains(w, " ") }
}

commands(binary) := tables.commands[binary]

commands(binary) := data.site.binaries[binary] if not tables.commands[binary]

# divider is where "--" stands, or the end. An entry that does not take it has it refused as an option that it does not know.
divider(words, entry) := min([i | some i, w in words; w == "--"]) if {
	entry.divider == true
	"--" in words
} else := count(words)

options_ok(before, options) if {
	named := [w | some w in before; startswith(w, "-")]
	count(named) == count({w | some w in named})
	every w in named { options[w] }
	every i, w in before { value_ok(before, options, i, w) }
}

value_ok(_, _, _, w) if not startswith(w, "-")

value_ok(_, options, _, w) if options[w] == "flag"

value_ok(before, options, i, w) if {
	options[w] != "flag"
	not startswith(before[i + 1], "-")
	is(options[w], before[i + 1])
}

# is_value says that the word before takes this one as its value. No value begins with a hyphen, so this needs no memory.
is_value(before, options, i) if {
	i > 0
	startswith(before[i - 1], "-")
	options[before[i - 1]] != "flag"
}

option_values(before, options) := [[options[before[i - 1]], w] |
	some i, w in before
	is_value(before, options, i)
]

operands(words, before, end, entry) := array.concat(
	[w | some i, w in before; not startswith(w, "-"); not is_value(before, entry.options, i)],
	after(words, end, entry),
)

after(words, end, entry) := array.slice(words, end + 1, count(words)) if {
	not entry.guest
} else := []

guest_words(words, end, entry) := array.slice(words, end + 1, count(words)) if {
	entry.guest == true
	end < count(words)
} else := [] if {
	not entry.guest
}

# typed pairs operands with kinds. The last kind may end in "?" (it may be missing) or "*" (any number, at least none).
typed(kinds, given) := [[k, w] | some i, w in given; k := kind_at(kinds, i)] if {
	count(given) >= count([k | some k in kinds; not optional(k)])
	every i, w in given { is(kind_at(kinds, i), w) }
}

kind_at(kinds, i) := kinds[i] if {
	is_array(kinds[i])
} else := trim_suffix(kinds[i], "?") if {
	not endswith(kinds[i], "*")
} else := trim_suffix(last, "*") if {
	last := kinds[count(kinds) - 1]
	is_string(last)
	endswith(last, "*")
	i >= count(kinds) - 1
}

optional(kind) if {
	is_string(kind)
	regex.match(`^.*[?*]$`, kind)
}

# is says whether a word is of a kind: a list of words, or the name of a pattern in the grammar.
is(kind, w) if {
	is_array(kind)
	w in kind
}

is(kind, w) if {
	is_string(kind)
	regex.match(tables.kinds[kind], w)
}

# An API path is known by its shape, in which the segment after a word such as nodes is a placeholder.
api_shape(path) := concat("/", [shown |
	all := split(path, "/")
	some i, _ in all
	shown := api_segment(all, i)
])

api_segment(all, i) := sprintf("{%s}", [api_kind(all, i)]) if {
	api_kind(all, i)
} else := all[i]

api_kind(all, i) := tables.api.placeholders[all[i - 1]] if i > 0

api_words(path) := [[kind, s] |
	all := split(path, "/")
	some i, s in all
	kind := api_kind(all, i)
]
