# METADATA
# scope: package
# description: Reads argv by the command grammar. What the grammar does not describe in every word has no description.
# schemas:
#   - data.site: schema.site
package caponier.core.grammar

tables := data.core.grammar

# describe gives id, group, tier and the words by kind: [[kind, word], …], and what runs inside a guest. Most commands need only the first
# two forms, without and with options; the third also knows dividers, guests, required options and operands that may be missing.
describe(argv) := {
	"id": found.id, "group": found.entry.group, "tier": found.entry.tier, "inside": false, "guest": [],
	"words": array.concat(found.words, plain),
} if {
	found := lookup(argv)
	words := array.slice(argv, found.skip, count(argv))
	not strings.any_prefix_match(words, "-")
	not found.entry.required
	plain := exact(found.entry.operands, words)
} else := {
	"id": found.id, "group": found.entry.group, "tier": found.entry.tier, "inside": false, "guest": [],
	"words": array.concat(found.words, array.concat(plain, parsed.values)),
} if {
	found := lookup(argv)
	not found.entry.required
	not found.entry.divider
	parsed := options_of(array.slice(argv, found.skip, count(argv)), found.entry.options)
	plain := exact(found.entry.operands, parsed.rest)
} else := {
	"id": found.id, "group": found.entry.group, "tier": found.entry.tier, "inside": object.get(found.entry, "guest", false), "guest": guest,
	"words": array.concat(found.words, array.concat(arguments, parsed.values)),
} if {
	found := lookup(argv)
	words := array.slice(argv, found.skip, count(argv))
	end := divider(words, found.entry)
	parsed := options_of(array.slice(words, 0, end), found.entry.options)
	guest := guest_words(words, end, found.entry)
	arguments := typed(found.entry.operands, array.concat(parsed.rest, after(words, end, found.entry)))
	every needed in object.get(found.entry, "required", []) { needed in array.slice(words, 0, end + 1) }
}

# exact pairs operands with kinds where there is one word of its pattern for each kind.
exact(kinds, words) := pairs if {
	count(words) == count(kinds)
	pairs := [[kinds[i], w] | some i, w in words; regex.match(tables.kinds[kinds[i]], w)]
	count(pairs) == count(words)
}

# options_of takes the options and their values out. Every word that begins with a hyphen is an option, exactly, and once. A value does
# not begin with one, so what a word is depends only on the word before it.
options_of(words, options) := {"values": values, "rest": [w | some i, w in words; not startswith(w, "-"); not i in taken]} if {
	at := [i | some i, w in words; startswith(w, "-")]
	every i in at { options[words[i]] }
	count(at) == count({words[i] | some i in at})
	taken := {j | some i in at; options[words[i]] != "flag"; j := i + 1}
	values := [[kind, words[i]] | some i in taken; not startswith(words[i], "-"); kind := options[words[i - 1]]; is(kind, words[i])]
	count(values) == count(taken)
}

# lookup finds the entry: of a program by its first word and as many of the next ones as name a sub-command, the longest first, of an API call
# by the shape of its path. Few programs have sub-commands of more than one word; core/grammar/base.yaml says which.
lookup(argv) := {"id": concat(" ", [argv[0], argv[1]]), "entry": entry, "skip": 2, "words": []} if {
	entry := tables.commands[argv[0]][argv[1]]
	entry.tier
	argv[1] != ""
	not tables.depth[argv[0]]
} else := {"id": concat(" ", [argv[0], argv[1], shape]), "entry": entry, "skip": 3, "words": segments} if {
	method := commands(argv[0])[argv[1]]
	method.api == true
	shape := api_shape(argv[2])
	entry := method.paths[shape]
	segments := api_words(argv[2])
	every pair in segments { is(pair[0], pair[1]) }
} else := {"id": concat(" ", array.slice(argv, 0, n)), "entry": entry, "skip": n, "words": []} if {
	n := max([m | some m in object.get(tables.depth, argv[0], [1, 2]); commands(argv[0])[sub(argv, m)].tier])
	entry := commands(argv[0])[sub(argv, n)]
}

# A word with a space in it could look like two words of a key, and an empty one like none, so these are never part of one.
sub(argv, n) := concat(" ", array.slice(argv, 1, n)) if {
	count(argv) >= n
	every w in array.slice(argv, 0, n) { regex.match(`^[^ ]+$`, w) }
}

commands(binary) := tables.commands[binary]

commands(binary) := data.site.binaries[binary] if not tables.commands[binary]

# divider is where "--" stands, or the end. An entry that does not take it has it refused as an option that it does not know.
divider(words, entry) := min([i | some i, w in words; w == "--"]) if {
	entry.divider == true
	"--" in words
} else := count(words)

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
